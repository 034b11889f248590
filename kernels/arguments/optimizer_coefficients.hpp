#pragma once

#include <cmath>

#include "arguments/multi_tensor.hpp"
#include "functional/optimizer.hpp"

/// @file
/// From the arguments of an optimizer's step to what its kernels multiply with.

namespace lockstep::kernels {

inline SgdCoefficients coefficients_of(const SgdArguments& c) {
  return {.gradient_sign = c.maximize ? -1.0 : 1.0,
          .lr = c.lr,
          .momentum = c.momentum,
          .dampening_rest = 1 - c.dampening,
          .weight_decay = c.weight_decay,
          .nesterov = c.nesterov,
          .first_step = c.first_step};
}

inline AdamCoefficients coefficients_of(const AdamArguments& c) {
  const auto step = static_cast<double>(c.step);
  return {.gradient_sign = c.maximize ? -1.0 : 1.0,
          .coupled_decay = c.decoupled_decay ? 0.0 : c.weight_decay,
          .shrink = c.decoupled_decay ? 1 - c.lr * c.weight_decay : 1.0,
          .beta1_rest = 1 - c.beta1,
          .beta2 = c.beta2,
          .beta2_rest = 1 - c.beta2,
          .eps = c.eps,
          .step_size = c.lr / (1 - std::pow(c.beta1, step)),
          .root_correction2 = std::sqrt(1 - std::pow(c.beta2, step))};
}

}  // namespace lockstep::kernels
