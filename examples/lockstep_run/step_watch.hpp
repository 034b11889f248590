#pragma once

#include <chrono>
#include <cstdint>

namespace run {

/// How long ranks may be without a step; zero: for any time.
struct StepWatchOptions {
  std::chrono::seconds report{60};  ///< then it is said,
  std::chrono::seconds restart{0};  ///< and then they are started again
};

/// Finds out that a run makes no step any more. Steps may take ten times as long as the longest so
/// far; and outside of them, in evaluations and up to the first two that are told, ten times as
/// long as the options say. A run that tells of no step is not watched.
class StepWatch {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Finding { none, report, restart };

  explicit StepWatch(const StepWatchOptions& options) : options_(options) {}

  /// Ranks are started.
  void begin();
  /// To be called every second or so. @param step the last one; -1: none told.
  /// @return what is to be done; the report once for each step.
  Finding look(std::int64_t step, bool is_in_long_work, Clock::time_point now);
  /// For how long there was no step.
  std::chrono::seconds standing() const;

 private:
  Clock::duration limit(std::chrono::seconds least) const;

  StepWatchOptions options_;
  std::int64_t step_ = -1;
  int steps_ = 0;  // that were told, at most 2
  bool is_in_long_work_ = false, is_pure_ = false, is_reported_ = false;
  Clock::duration standing_{}, longest_{};
  Clock::time_point last_look_{};
};

}  // namespace run
