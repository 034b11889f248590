#include "comm/contracts.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::comm {
namespace {

using testing::name_of_ranks;

const auto mapped = ::testing::Values(testing::processes("mapped"));
INSTANTIATE_TEST_SUITE_P(Mapped, CommunicatorContract, mapped, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mapped, HostCommunicatorContract, mapped, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mapped, BatchContract, mapped, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mapped, HostBatchContract, mapped, name_of_ranks);

TEST(MappedBackend, SaysItsName) {
  testing::with_world([](Communicator& group) { EXPECT_EQ(group.backend(), "mapped"); },
                      {.backend = "mapped"});
}

}  // namespace
}  // namespace lockstep::comm
