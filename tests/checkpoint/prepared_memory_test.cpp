#include <chrono>
#include <cstdint>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"

// The memory of a first save is provided beside training.

namespace lockstep {
namespace {

using testing::run_job, testing::TemporaryFolder;

/// Memory that the process has, in MiB.
std::int64_t resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE) >> 20;
}

TEST(PreparedMemory, IsThereForTheFirstSaveAlsoBehindALoadOfTensorsThatDoNotStay) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const Tensor weight = ones({std::int64_t{16} << 20});  // 64 MiB
    const checkpoint::TensorState state{
        .pieces = [&] { return std::vector<checkpoint::Piece>{{.name = "w", .tensor = weight}}; },
        .load = [&](const NamedTensors& all) { Tensor(weight).copy_(all.at(0).second); }};
    for (const bool is_loaded : {false, true}) {
      checkpoint::Manager manager(folder / (is_loaded ? "other" : "run"), group,
                                  {.read_back = false});
      manager.add("weight", state);
      const std::int64_t before = resident_mib();
      if (is_loaded)
        manager.load(folder / "run/step-1");
      else
        manager.is_due(0);
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::seconds(20 * testing::timeout_multiplier);
      while (resident_mib() < before + 48 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_GE(resident_mib(), before + 48) << is_loaded;
      manager.save(1);
      ASSERT_TRUE(manager.wait()) << manager.error();
    }
  });
}

}  // namespace
}  // namespace lockstep
