#pragma once

#include "arguments/multi_tensor.hpp"
#include "functional/optimizer.hpp"

/// @file
/// From the arguments of an optimizer's step to what its kernels multiply with.

namespace lockstep::kernels {

/// @param step of the tensor, counted from 1.
LOCKSTEP_HD inline SgdCoefficients coefficients_of(const SgdArguments& c, std::int64_t step) {
  return {.gradient_factor = (c.maximize ? -1.0 : 1.0) * c.state.unscaling(),
          .lr = *c.state.lr,
          .momentum = c.momentum,
          .dampening_rest = 1 - c.dampening,
          .weight_decay = c.weight_decay,
          .nesterov = c.nesterov,
          .first_step = step == 1};
}

/// @copydoc coefficients_of
LOCKSTEP_HD inline AdamCoefficients coefficients_of(const AdamArguments& c, std::int64_t step) {
  namespace math = functional::math;
  const double lr = *c.state.lr;
  const auto steps = static_cast<double>(step);
  return {.gradient_factor = (c.maximize ? -1.0 : 1.0) * c.state.unscaling(),
          .coupled_decay = c.decoupled_decay ? 0.0 : c.weight_decay,
          .shrink = c.decoupled_decay ? 1 - lr * c.weight_decay : 1.0,
          .beta1_rest = 1 - c.beta1,
          .beta2 = c.beta2,
          .beta2_rest = 1 - c.beta2,
          .eps = c.eps,
          .step_size = lr / (1 - math::pow(c.beta1, steps)),
          .root_correction2 = math::sqrt(1 - math::pow(c.beta2, steps))};
}

}  // namespace lockstep::kernels
