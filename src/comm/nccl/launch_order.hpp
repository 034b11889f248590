#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "lockstep/runtime/stream.hpp"

namespace lockstep::comm {

/// The order in which the communicators of one device begin their operations. It must be the same
/// on all ranks, or kernels of two communicators wait for each other; and streams of their own have
/// none. From 2.26 on NCCL keeps to the order of the calls if it is told to. For older ones, or
/// where the user has it otherwise, operations of different communicators run one after the other.
class LaunchOrder {
 public:
  /// Sets NCCL_LAUNCH_ORDER_IMPLICIT unless it is set; before anything else is asked of NCCL.
  static void ask_nccl_for_it();
  static LaunchOrder& of(Device device);

  /// What comes on a communicator's stream from now on begins after what the other communicators
  /// were given.
  void take_turn(StreamRef stream);
  /// What comes on a stream that launches a graph with operations in it begins after what the
  /// communicators were given.
  void order_before(StreamRef stream);

 private:
  std::mutex mutex_;
  std::uint64_t recording_ = 0;    // of the step in which the last turn was captured
  std::optional<StreamRef> last_;  // streams come from a reserve and never go away
};

}  // namespace lockstep::comm
