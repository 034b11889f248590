#include "comm/communicator_contract.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::comm {
namespace {

struct MpiRanks {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    testing::with_world(body, options);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, CommunicatorContract, MpiRanks);

TEST(MpiBootstrap, KnowsItsPlace) {
  Bootstrap& bootstrap = testing::test_bootstrap();
  EXPECT_EQ(bootstrap.kind(), "mpi");
  EXPECT_TRUE(bootstrap.is_one_host());
  EXPECT_EQ(bootstrap.local_rank(), bootstrap.rank());
  EXPECT_EQ(bootstrap.peers().size(), static_cast<std::size_t>(bootstrap.size()));
  EXPECT_EQ(bootstrap.broadcast_bytes(std::to_string(bootstrap.rank()), bootstrap.size() - 1),
            std::to_string(bootstrap.size() - 1));
}

TEST(MpiBootstrap, MakesACommunicatorOfItsOwnKind) {
  testing::with_world([](Communicator& group) {
    EXPECT_EQ(group.backend(), "mpi");
    EXPECT_EQ(group.rank(), testing::test_bootstrap().rank());
  });
}

}  // namespace
}  // namespace lockstep::comm
