#include "comm/contracts.hpp"
#include "comm/window/window_backend.hpp"
#include "support/mpi_world.hpp"

// A backend from outside the library passes the contract of all, and is chosen by its name.

namespace lockstep::comm {
namespace {

using testing::ContractRanks, testing::name_of_ranks;

const ContractRanks over_windows{
    .name = "Processes", .run = [](const ContractRanks::Body& body, CommunicatorOptions options) {
      static const bool is_added = (add_backend(window_backend()), true);
      if (is_added) options.backend = "window";
      testing::with_world(body, options);
    }};
const auto window = ::testing::Values(over_windows);
INSTANTIATE_TEST_SUITE_P(Window, CommunicatorContract, window, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Window, HostCommunicatorContract, window, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Window, BatchContract, window, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Window, HostBatchContract, window, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Window, HostWaitingContract, window, name_of_ranks);

TEST(WindowBackend, SaysItsName) {
  over_windows.run([](Communicator& group) { EXPECT_EQ(group.backend(), "window"); }, {});
}

}  // namespace
}  // namespace lockstep::comm
