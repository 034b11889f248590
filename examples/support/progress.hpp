#pragma once

#include <chrono>
#include <cstdint>
#include <string>

/// @file
/// What a training program shows of itself: a line that renews itself on a terminal, plain lines
/// now and then where the output is piped.

namespace examples {

/// Shows progress over a known number of steps. A silent one shows nothing (ranks other than 0).
class Progress {
 public:
  /// @param steps number of steps to come.
  /// @param silent show nothing.
  Progress(std::int64_t steps, bool silent);

  /// Shows step `step` (from 1): loss, throughput and the time left.
  /// @param rate samples or tokens per second, with its unit.
  void show(std::int64_t step, double loss, double rate, const std::string& unit);
  /// Ends the renewing line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool due(std::int64_t step) const;

  std::int64_t steps_;
  bool silent_, terminal_;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
};

}  // namespace examples
