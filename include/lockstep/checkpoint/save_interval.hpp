#pragma once

#include <cstdint>

/// @file
/// How often a run is saved.

namespace lockstep::checkpoint {

/// After so many steps, after so much time, or as often as costs little.
struct SaveInterval {
  std::int64_t steps = 0;   ///< after steps that are multiples of it; 0: not by steps
  double seconds = 0;       ///< 0: not by time
  double max_overhead = 0;  ///< saves take at most this share of the time; 0: not by that

  /// After every so many steps.
  static SaveInterval every_steps(std::int64_t steps) { return {.steps = steps}; }
  /// Some seconds apart, by the steps' measured time.
  static SaveInterval every_seconds(double seconds) { return {.seconds = seconds}; }
  /// So often that what training waits for, and loses while files are written, is at most this
  /// share of the time, by the last save's measured cost.
  static SaveInterval automatic(double max_overhead = 0.01) {
    return {.max_overhead = max_overhead};
  }
};

}  // namespace lockstep::checkpoint
