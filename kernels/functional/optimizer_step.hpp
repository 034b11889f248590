#pragma once

#include <cstdint>

#include "lockstep/core/macros.hpp"

/// @file
/// What the rules of optimizers are told.

namespace lockstep {

/// What changes from step to step.
struct OptimizerStep {
  double lr;
  double unscaling;      ///< factor that takes the loss scale off the gradient
  std::int64_t number;   ///< of the tensor's step, from 1
  double carried = 0.0;  ///< `carried` of the coefficients of the tensor's step before, if any
  /// For rules by layer: sums of squares over the tensor, once they are known.
  double parameter_square = 0.0, update_square = 0.0;

  /// What takes the loss scale and, to go uphill, the sign off a gradient.
  LOCKSTEP_HD double gradient_factor(bool maximize) const {
    return maximize ? -unscaling : unscaling;
  }
};

/// States that an element has at most.
inline constexpr int most_optimizer_states = 3;

}  // namespace lockstep
