#pragma once

#include <cstdint>
#include <functional>
#include <vector>

/// @file
/// Learning rates over time. A schedule is a function of the base rate and the number of steps
/// taken and remembers nothing, so it can be evaluated at any step, and resumed by a number. Names
/// of schedules, rates and defaults are PyTorch's; lengths are called `iterations` in all. All
/// throw InvalidArgument for lengths below 1.

namespace lockstep::optim {

/// Learning rate at `step` (from 0) for a base rate.
using Schedule = std::function<double(double base, std::int64_t step)>;

/// base * factor for the first `iterations` steps, then base. With a factor of 1 base throughout.
struct ConstantLR {
  double factor = 1.0 / 3.0;
  std::int64_t iterations = 5;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// Multiplies by gamma every `step_size` steps.
struct StepLR {
  std::int64_t step_size = 1;
  double gamma = 0.1;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// Multiplies by gamma at each milestone.
struct MultiStepLR {
  std::vector<std::int64_t> milestones = {};
  double gamma = 0.1;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// Multiplies by gamma at every step.
struct ExponentialLR {
  double gamma = 0.95;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// From base * start_factor to base * end_factor in a straight line: warm-up.
struct LinearLR {
  double start_factor = 1.0 / 3.0;
  double end_factor = 1.0;
  std::int64_t iterations = 5;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// From base to min_lr along half a cosine (Loshchilov and Hutter 2017), and back again after that.
struct CosineAnnealingLR {
  std::int64_t iterations = 0;  ///< must be given
  double min_lr = 0.0;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// Half a cosine from base to min_lr over and over, each `multiplier` times as long as the last.
struct CosineAnnealingWarmRestarts {
  std::int64_t iterations = 0;  ///< must be given
  std::int64_t multiplier = 1;
  double min_lr = 0.0;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// base * (1 - step / iterations)^power, then 0.
struct PolynomialLR {
  std::int64_t iterations = 5;
  double power = 1.0;
  /// The rate at a step.
  double operator()(double base, std::int64_t step) const;
};

/// Up to base along half a cosine, then down to almost nothing along another (Smith and Topin
/// 2018): from base / div_factor over base to base / div_factor / final_div_factor. The last rate
/// stays.
struct OneCycleLR {
  std::int64_t iterations = 0;  ///< must be given
  double pct_start = 0.3;       ///< part of the iterations that goes up, 0 to 1
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  /// The rate at a step. @throws InvalidArgument for a part outside 0 to 1 or a factor of 0 or
  /// less.
  double operator()(double base, std::int64_t step) const;
};

/// From base to a rate that stays, for stochastic weight averaging (Izmailov et al. 2018).
struct SWALR {
  double swa_lr = 0.05;
  std::int64_t iterations = 10;
  bool linear = false;  ///< in a straight line instead of half a cosine
  /// The rate at a step. @throws InvalidArgument for a negative rate.
  double operator()(double base, std::int64_t step) const;
};

/// One schedule after another: schedule i + 1 starts, at its own step 0, at milestone i.
struct SequentialLR {
  std::vector<Schedule> schedules;
  std::vector<std::int64_t> milestones;
  /// The rate at a step. @throws InvalidArgument unless there is one milestone less than schedules.
  double operator()(double base, std::int64_t step) const;
};

}  // namespace lockstep::optim
