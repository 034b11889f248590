#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

#include <gtest/gtest.h>

#include "support/hang_watchdog.hpp"
#include "support/mpi_world.hpp"

// Runs a test program as one rank of a job: all ranks run the same tests in the same order.

namespace lockstep::testing {
namespace {

std::unique_ptr<comm::Bootstrap> bootstrap;
std::mutex current_mutex;
Communicator* current = nullptr;

std::string describe_rank() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string text = test ? std::string(test->test_suite_name()) + "." + test->name() : "no test";
  const std::lock_guard lock(current_mutex);
  return text + ": rank " + std::to_string(bootstrap->rank()) + ", " +
         (current ? current->describe_progress() : "no communicator");
}

// Failures of any rank are shown, with its number; progress is rank 0's alone.
class RankFailures : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", bootstrap->rank(),
                 result.file_name() ? result.file_name() : "?", result.line_number(),
                 result.message());
  }
};

int run_all() {
  if (bootstrap->rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new RankFailures);
  }
  const int own = RUN_ALL_TESTS();
  int failed = 0;
  for (const std::string& result : bootstrap->all_gather_bytes(std::to_string(own), "results"))
    if (result != "0") ++failed;
  if (bootstrap->rank() == 0 && failed > 0)
    std::fprintf(stderr, "tests failed on %d of %d ranks\n", failed, bootstrap->size());
  return failed > 0 ? 1 : 0;
}

}  // namespace

comm::Bootstrap& test_bootstrap() { return *bootstrap; }

void with_world(const std::function<void(Communicator&)>& body,
                const comm::CommunicatorOptions& options, Device device) {
  {
    const CommunicatorPtr world = comm::make_communicator(*bootstrap, device, options);
    {
      const std::lock_guard lock(current_mutex);
      current = world.get();
    }
    body(*world);
    const std::lock_guard lock(current_mutex);
    current = nullptr;
  }
  bootstrap->barrier();
}

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int result = 1;
  try {
    lockstep::testing::bootstrap = lockstep::comm::make_bootstrap();
    const lockstep::testing::HangWatchdog watchdog(std::chrono::seconds(240),
                                                   lockstep::testing::describe_rank);
    result = lockstep::testing::run_all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test program failed: %s\n", error.what());
    std::_Exit(1);
  }
  lockstep::testing::bootstrap.reset();
  return result;
}
