#include "comm/batch_contract.hpp"
#include "comm/host_batch_contract.hpp"
#include "comm/host_communicator_contract.hpp"
#include "comm/staged_communicator.hpp"
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
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, HostCommunicatorContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, BatchContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, HostBatchContract, MpiRanks);

// The way in which the suite reaches devices, tried where there is none.
struct StagedMpiRanks {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    const auto staged = [&](Communicator& group) { lend_staged(group, body); };
    testing::with_world(staged, options);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, CommunicatorContract, StagedMpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, BatchContract, StagedMpiRanks);

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
