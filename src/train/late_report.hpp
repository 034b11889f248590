#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "lockstep/tensor/host_copy.hpp"
#include "lockstep/train/loop_reports.hpp"
#include "lockstep/train/step.hpp"

/// @file
/// Reading the results of a step while the next one is under way.

namespace lockstep::train {

/// Tells of each step when the next one has been queued: a GPU is busy with that while the host
/// waits for the values of the one before.
class LateReport {
 public:
  using Tell = std::function<void(const StepReport& step)>;

  /// Tells of the step before, and keeps this one.
  void add(std::int64_t step, const StepResult& result, const Tell& tell);
  /// Tells of the last step.
  void flush(const Tell& tell);
  /// The next step begins now: what came since the last one belongs to neither.
  void restart() { former_end_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Untold {
    std::int64_t step;
    double lr;
    HostCopy loss;
    std::optional<HostCopy> grad_norm = {};
    std::optional<Clock::time_point> end = {};  // where it is known already
  };

  std::optional<Untold> untold_;
  Clock::time_point former_end_ = Clock::now();
};

}  // namespace lockstep::train
