#include "comm/contracts.hpp"
#include "comm/hier/placed_ranks.hpp"

namespace lockstep::comm {
namespace {

using testing::name_of_ranks, testing::placed, testing::Placement;

const auto by_host = placed("ByHost", Placement::by_host);
const auto placements = ::testing::Values(by_host, placed("ByNode", Placement::by_node));
INSTANTIATE_TEST_SUITE_P(HierMpi, CommunicatorContract, placements, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierMpi, BatchContract, placements, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierMpi, HostBatchContract, placements, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierMpi, HostWaitingContract, placements, name_of_ranks);
const auto in_order = ::testing::Values(by_host);
INSTANTIATE_TEST_SUITE_P(HierMpi, HostCommunicatorContract, in_order, name_of_ranks);

TEST(HierBackend, IsNotForRanksOfOneHost) {
  CommunicatorOptions options;
  options.backend = "hier";
  EXPECT_THROW(make_communicator(testing::test_bootstrap(), cpu, options), Unsupported);
}

}  // namespace
}  // namespace lockstep::comm
