#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

/// @file
/// Timing of repeated work.

namespace lockstep::benchmark {

/// Seconds of one repetition.
struct Timing {
  double minimum, median;
  std::size_t repetitions;
};

/// How long to measure.
struct Budget {
  double seconds = 0.3;
  std::size_t at_least = 5;
};

/// Runs `work` twice to warm up, then until the budget is spent. Short work is timed in batches, so
/// that reading the clock does not count.
template <class Work>
Timing measure(Work&& work, Budget budget = {}) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](std::size_t repeats) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < repeats; ++i) work();
    return std::chrono::duration<double>(Clock::now() - start).count() /
           static_cast<double>(repeats);
  };
  work();
  const double once = time(1);
  const auto batch = static_cast<std::size_t>(std::max(1.0, 20e-6 / std::max(once, 1e-9)));
  std::vector<double> times;
  for (double spent = 0; spent < budget.seconds || times.size() < budget.at_least;) {
    times.push_back(time(batch));
    spent += times.back() * static_cast<double>(batch);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2], times.size()};
}

}  // namespace lockstep::benchmark
