#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/work.hpp"
#include "lockstep/parallel/trace.hpp"
#include "lockstep/runtime/event.hpp"

/// @file
/// Notes the times of a backward without waiting for them.

namespace lockstep::parallel {

/// A moment of the computation: of the host's on the CPU; on a GPU, which runs behind the host,
/// when it got there.
class TraceMoment {
 public:
  /// Marks the present end of the current stream of a device.
  explicit TraceMoment(Device device);
  /// When that was. Waits until it is.
  TraceClock::time_point time() const;

 private:
  TraceClock::time_point on_host_;
  std::optional<Event> on_gpu_;
};

/// Records one backward at a time, and tells its times once it is asked. Of one that is captured,
/// and runs with each launch of its graph, there are none.
class TraceRecorder {
 public:
  /// For backwards on a device.
  explicit TraceRecorder(Device device) : device_(device) {}

  /// The first gradient: forgets the backward before.
  void begin();
  /// The gradients of a bucket are complete: its all-reduce comes next.
  void launch(const std::string& label, std::size_t bytes);
  /// The all-reduce of the last launch.
  void launched(const comm::Work& work);
  /// The last op's backward has returned.
  void end_backward();
  /// All results are complete.
  void synchronize();

  /// The times of what was recorded, as far as it got; waits for the device to get there.
  ReducerTrace trace() const;

 private:
  struct Launch {
    std::string label;
    std::size_t bytes;
    TraceMoment moment;
    comm::Work work;
  };

  bool is_captured() const;

  Device device_;
  std::optional<TraceMoment> first_gradient_, backward_end_, synchronized_;
  std::vector<Launch> launches_;  // those of the last backward
};

}  // namespace lockstep::parallel
