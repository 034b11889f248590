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

TEST(SlowReads, MayTakeLongerThanTheTimeOutInAllWhileTheyGoOn) {
  const TemporaryFolder folder;
  const std::chrono::milliseconds timeout(3000 * testing::timeout_multiplier);
  static std::chrono::milliseconds pause;  // of a read of 1 MiB; four threads read
  pause = timeout / 16;
  static constexpr std::int64_t part = std::int64_t{96} << 20;  // of a rank: 1.5 time-outs
  comm::run_ranks(2,
                  [&](comm::Communicator& ranks) {
                    const CommunicatorPtr group(&ranks);
                    const Tensor weight = ones({2 * part / 4});
                    Manager checkpoints(folder / "run", group);
                    checkpoints.add("weight", TensorState{.pieces =
                                                              [&] {
                                                                return std::vector<Piece>{
                                                                    {.name = "w",
                                                                     .tensor = weight,
                                                                     .loads_in_place = true}};
                                                              },
                                                          .load = [](const NamedTensors&) {}});
                    checkpoints.save(1);
                    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
                    group->barrier().wait();
                    if (group->rank() == 0)
                      io::file_calls.pread = [](int file, void* data, size_t size, off_t offset) {
                        if (offset >= part)
                          std::this_thread::sleep_for(pause);  // what rank 1 reads
                        return ::pread(file, data, size, offset);
                      };
                    group->barrier().wait();
                    EXPECT_EQ(checkpoints.load(folder / "run/step-1"), 1);
                  },
                  {.timeout = timeout});
  io::file_calls = {};
}

}  // namespace
}  // namespace lockstep
