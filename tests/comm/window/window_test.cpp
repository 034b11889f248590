#include "comm/batch_contract.hpp"
#include "comm/host_batch_contract.hpp"
#include "comm/host_communicator_contract.hpp"
#include "comm/host_waiting_contract.hpp"
#include "comm/window/window_backend.hpp"
#include "support/mpi_world.hpp"

// A backend from outside the library passes the contract of all, and is chosen by its name.

namespace lockstep::comm {
namespace {

struct WindowRanks {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    static const bool is_added = (add_backend(window_backend()), true);
    CommunicatorOptions over_window = options;
    if (is_added) over_window.backend = "window";
    testing::with_world(body, over_window);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Window, CommunicatorContract, WindowRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Window, HostCommunicatorContract, WindowRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Window, BatchContract, WindowRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Window, HostBatchContract, WindowRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Window, HostWaitingContract, WindowRanks);

TEST(WindowBackend, SaysItsName) {
  WindowRanks::run([](Communicator& group) { EXPECT_EQ(group.backend(), "window"); }, {});
}

}  // namespace
}  // namespace lockstep::comm
