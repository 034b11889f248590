#pragma once

#include <cstddef>
#include <memory>
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

/// When gradients and buckets of a backward were ready, where that was recorded.
struct ReadyTimes {
  std::vector<std::optional<TraceClock::time_point>> gradients;  ///< by parameter
  std::vector<std::optional<TraceClock::time_point>> buckets;    ///< before their exchange began
};

/// Records one backward at a time, and tells its times once it is asked. Of one that is captured,
/// and runs with each launch of its graph, there are none. Copies tell of the same backward.
class TraceRecorder {
 public:
  /// For backwards on a device.
  explicit TraceRecorder(Device device) : device_(device) {}

  /// The first gradient: goes on to another backward.
  /// @param with_ready_times notes `ready` and `complete`, too.
  void begin(bool with_ready_times = false);
  /// The gradient of a parameter is final.
  void ready(std::size_t parameter);
  /// The gradients of a bucket are complete: its exchange comes next.
  void complete(std::size_t bucket);
  /// Its all-reduce, or what else its exchange starts, comes next.
  void launch(const std::string& label, std::size_t bucket, std::size_t bytes);
  /// The all-reduce of the last launch.
  void launched(const comm::Work& work);
  /// The last op's backward has returned.
  void end_backward();
  /// All results are complete.
  void synchronize();

  /// The times of what was recorded, as far as it got; waits for the device to get there.
  ReducerTrace trace() const;
  /// The same for `ready` and `complete`.
  ReadyTimes ready_times() const;

 private:
  struct Launch {
    std::string label;
    std::size_t bucket, bytes;
    TraceMoment moment;
    comm::Work work;
  };
  using Moments = std::vector<std::optional<TraceMoment>>;
  struct Record {
    bool with_ready_times = false;
    std::optional<TraceMoment> first_gradient, backward_end, synchronized;
    std::vector<Launch> launches;
    Moments ready, complete;
  };

  bool is_captured() const;
  void note(Moments Record::*moments, std::size_t index);

  Device device_;
  std::shared_ptr<Record> record_ = std::make_shared<Record>();  // of the last backward
};

}  // namespace lockstep::parallel
