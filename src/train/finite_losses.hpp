#pragma once

#include <cstdint>

/// @file
/// Whether a training's losses are numbers.

namespace lockstep::train {

/// Counts losses that are not finite, in a row up to the last, and warns of them once. A
/// GradScaler, which leaves out steps, may get over a few.
class FiniteLosses {
 public:
  /// @param rank that has the loss. @param warns whether this rank is to.
  void add(std::int64_t step, double loss, int rank, bool warns);
  /// At the end of the run, which may come before there are enough.
  void end(int rank, bool warns);
  /// Of how many the last was one.
  std::int64_t count() const noexcept { return count_; }
  /// The first of them.
  std::int64_t first_step() const noexcept { return first_step_; }

 private:
  void warn(int rank);

  std::int64_t count_ = 0, first_step_ = 0;
  double last_ = 0;
  bool has_warned_ = false;
};

}  // namespace lockstep::train
