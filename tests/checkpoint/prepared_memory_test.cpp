#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "support/resident_bytes.hpp"
#include "support/temporary_folder.hpp"

// The memory of a first save is provided beside training.

namespace lockstep {
namespace {

using testing::run_job, testing::TemporaryFolder;

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
      const std::int64_t before = testing::resident_bytes();
      if (is_loaded)
        manager.load(folder / "run/step-1");
      else
        manager.is_due(0);
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::seconds(20 * testing::timeout_multiplier);
      while (testing::resident_bytes() < before + (48 << 20) &&
             std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_GE(testing::resident_bytes(), before + (48 << 20)) << is_loaded;
      manager.save(1);
      ASSERT_TRUE(manager.wait()) << manager.error();
    }
  });
}

}  // namespace
}  // namespace lockstep
