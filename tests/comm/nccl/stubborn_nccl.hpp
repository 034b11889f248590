#pragma once

#include <atomic>

/// @file
/// What real NCCL and CUDA are documented to do, or are known to, and the simulated ones do not:
/// put in front of their functions by the linker (--wrap).

namespace lockstep::testing {

/// Which of it holds in this process; all off at first.
struct StubbornNccl {
  /// Launches after so many wait until the communicator is aborted: the device's queue is full.
  std::atomic<int> launches_left{-1};
  /// ncclCommAbort never returns: it frees memory, and cudaFree waits for the whole device.
  std::atomic<bool> abort_waits{false};
  /// ncclCommDestroy waits for the other ranks of the node: "an intra-node collective call".
  std::atomic<bool> destroy_is_collective{false};
  /// ncclCommSplit is under way until the abort, then NCCL's thread writes a part to `newcomm`.
  std::atomic<bool> split_hangs{false};
  /// Sends that fit NCCL's buffers end without their receiver.
  std::atomic<bool> sends_are_buffered{false};
  /// cudaEventQuery waits until an abort: another thread's call, which waits for what hangs, keeps
  /// the driver.
  std::atomic<bool> driver_waits{false};
  /// Calls of cudaSetDevice for, and pinned allocations with, another device than `own_device`.
  std::atomic<int> own_device{-1};
  std::atomic<int> foreign_devices{0};
  std::atomic<int> pinned_ranges{0};
  /// After a split that hung: what NCCL's thread was given to write to, and whether it has.
  std::atomic<void*> split_slot{nullptr};
  std::atomic<bool> split_has_written{false};
  std::atomic<bool> late_part_is_aborted{false};

  static StubbornNccl& instance();
};

}  // namespace lockstep::testing
