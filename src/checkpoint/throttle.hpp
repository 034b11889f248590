#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

/// @file
/// How much of a processor a save takes from training.

namespace lockstep::checkpoint {

/// The processor time of the calling thread so far, in seconds.
double processor_seconds() noexcept;

/// Spreads the work of a save over time: on average it takes a few percent of one processor, until
/// somebody waits for it. Any thread.
class Throttle {
 public:
  /// A save begins, unhurried.
  /// @param longest of how many seconds rests may make it.
  void begin(double longest);
  /// What is under way, and what follows until the next `begin`, shall be done as soon as possible.
  void hurry();
  /// Whether somebody waits.
  bool hurries() const;
  /// Counts processor time that the save has taken.
  void spend(double seconds);
  /// Sleeps until what was spent is a small share of the time since `begin`, or somebody hurries.
  void rest();
  /// Does what waits for other ranks, which may rest meanwhile: that counts as rest, too.
  template <class Wait>
  auto rest_with_others(const Wait& wait) {
    const auto entered = Clock::now();
    auto result = wait();
    const std::lock_guard lock(mutex_);
    add_rest(entered);
    return result;
  }
  /// For how many seconds of the save at least one thread rested.
  double rested() const;

 private:
  using Clock = std::chrono::steady_clock;

  void add_rest(Clock::time_point entered);

  mutable std::mutex mutex_;
  std::condition_variable hurried_;
  bool hurries_ = true;
  Clock::time_point start_, rested_until_;
  double longest_ = 0, spent_ = 0, rested_ = 0;
};

}  // namespace lockstep::checkpoint
