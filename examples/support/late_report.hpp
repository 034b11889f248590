#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/tensor/host_copy.hpp>

/// @file
/// Reading the results of a step while the next one is under way.

namespace examples {

/// What is known of a step once all its work is queued.
struct QueuedStep {
  std::int64_t number = 0;
  double lr = 0;
  lockstep::HostCopy loss;
  std::optional<lockstep::HostCopy> grad_norm = {};
};

/// Tells of each step when the next one has been queued: a GPU is busy with that while the host
/// waits for the values of the one before.
class LateReport {
 public:
  /// @param seconds from the end of the step before to the end of this one.
  using Tell = std::function<void(const QueuedStep& step, double seconds)>;

  explicit LateReport(Tell tell) : tell_(std::move(tell)) {}

  /// Tells of the step before, and keeps this one.
  void add(QueuedStep step);
  /// Tells of the last step.
  void flush();
  /// The next step begins now: what came since the last one belongs to neither.
  void restart();

 private:
  using Clock = std::chrono::steady_clock;
  struct Untold {
    QueuedStep step;
    std::optional<Clock::time_point> ended;
  };

  Tell tell_;
  std::vector<Untold> untold_;  // one at most
  Clock::time_point former_ended_ = Clock::now();
};

}  // namespace examples
