#pragma once

#include <utility>

namespace lockstep::parallel {

/// For its scope, gradients on the calling thread are those of a rank's loss in units of its first
/// weight, which another rank may have another of: what exchanges them within backward must not
/// add these up.
class GradientUnit {
 public:
  /// @param weight of the first micro-batch; 0: none, or not known.
  explicit GradientUnit(double weight) noexcept : before_(std::exchange(current_, weight)) {}
  GradientUnit(const GradientUnit&) = delete;
  GradientUnit& operator=(const GradientUnit&) = delete;
  ~GradientUnit() { current_ = before_; }

  /// The gradients are scaled alike on all ranks after all.
  static void forget() noexcept { current_ = 0; }
  static double current() noexcept { return current_; }

 private:
  static inline thread_local double current_ = 0;
  double before_;
};

}  // namespace lockstep::parallel
