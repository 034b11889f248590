#include <chrono>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "io/file_calls.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"

// Loads on hosts of which one reads slower than the others.

namespace lockstep {
namespace {

using checkpoint::Manager, checkpoint::Piece, checkpoint::TensorState;
using testing::TemporaryFolder;

constexpr std::int64_t part = std::int64_t{96} << 20;  // of each of two ranks, in bytes

void add_weight(Manager& checkpoints, const Tensor& weight) {
  checkpoints.add("weight",
                  TensorState{.pieces =
                                  [weight] {
                                    return std::vector<Piece>{
                                        {.name = "w", .tensor = weight, .loads_in_place = true}};
                                  },
                              .load = [](const NamedTensors&) {}});
}

TEST(SlowReads, MayTakeLongerThanTheTimeOutInAllWhileTheyGoOn) {
  const TemporaryFolder folder;
  testing::run_job(2, [&](const CommunicatorPtr& group) {
    Manager checkpoints(folder / "run", group);
    add_weight(checkpoints, ones({2 * part / 4}));
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
  });
  const std::chrono::milliseconds timeout(3000 * testing::timeout_multiplier);
  static std::chrono::milliseconds pause;  // of a read of 1 MiB; with four threads, 1.5 time-outs
  pause = timeout / 16;
  io::file_calls.pread = [](int file, void* data, size_t size, off_t offset) {
    if (offset >= part) std::this_thread::sleep_for(pause);  // what rank 1 reads
    return ::pread(file, data, size, offset);
  };
  comm::run_ranks(2,
                  [&](comm::Communicator& group) {
                    Manager checkpoints(folder / "other", CommunicatorPtr(&group));
                    add_weight(checkpoints, ones({2 * part / 4}));
                    EXPECT_EQ(checkpoints.load(folder / "run/step-1"), 1);
                  },
                  {.timeout = timeout});
  io::file_calls = {};
}

}  // namespace
}  // namespace lockstep
