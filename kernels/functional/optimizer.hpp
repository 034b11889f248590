#pragma once

#include "functional/math.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Optimizer updates of one element, as PyTorch computes them, over the accumulation type T.

namespace lockstep {

/// Coefficients of one SGD step, ready to apply.
struct SgdCoefficients {
  double gradient_factor;                             ///< takes scale and sign off the gradient
  double lr, momentum, dampening_rest, weight_decay;  ///< dampening_rest = 1 - dampening
  bool nesterov, first_step;
};

/// Coefficients of one Adam step, bias correction included, ready to apply.
struct AdamCoefficients {
  double gradient_factor;  ///< takes scale and sign off the gradient
  double coupled_decay;    ///< added to the gradient, times the parameter (Adam)
  double shrink;           ///< factor on the parameter: 1 - lr * decay (AdamW), else 1
  double beta1_rest;       ///< 1 - beta1
  double beta2, beta2_rest, eps;
  double step_size;         ///< lr / (1 - beta1^t)
  double root_correction2;  ///< sqrt(1 - beta2^t)
};

}  // namespace lockstep

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// Stochastic gradient descent with momentum (Sutskever et al. 2013).
template <class T, bool has_momentum>
struct SgdRule {
  T factor, lr, momentum, dampening_rest, decay;
  bool nesterov, first_step;

  LOCKSTEP_HD explicit SgdRule(const SgdCoefficients& c)
      : factor(static_cast<T>(c.gradient_factor)),
        lr(static_cast<T>(c.lr)),
        momentum(static_cast<T>(c.momentum)),
        dampening_rest(static_cast<T>(c.dampening_rest)),
        decay(static_cast<T>(c.weight_decay)),
        nesterov(c.nesterov),
        first_step(c.first_step) {}

  /// Updates the parameter and its momentum.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(T& parameter, T gradient, T& buffer) const {
    T g = factor * gradient + decay * parameter;
    if constexpr (has_momentum) {
      buffer = first_step ? g : momentum * buffer + dampening_rest * g;
      g = nesterov ? g + momentum * buffer : buffer;
    }
    parameter -= lr * g;
  }
};

/// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017), AMSGrad (Reddi et al. 2018).
template <class T, bool amsgrad>
struct AdamRule {
  T factor, coupled_decay, shrink, beta1_rest, beta2, beta2_rest, eps, step_size, root_correction2;

  LOCKSTEP_HD explicit AdamRule(const AdamCoefficients& c)
      : factor(static_cast<T>(c.gradient_factor)),
        coupled_decay(static_cast<T>(c.coupled_decay)),
        shrink(static_cast<T>(c.shrink)),
        beta1_rest(static_cast<T>(c.beta1_rest)),
        beta2(static_cast<T>(c.beta2)),
        beta2_rest(static_cast<T>(c.beta2_rest)),
        eps(static_cast<T>(c.eps)),
        step_size(static_cast<T>(c.step_size)),
        root_correction2(static_cast<T>(c.root_correction2)) {}

  /// Updates the parameter and its moments; `largest` is used by AMSGrad only.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(T& parameter, T gradient, T& first, T& second,
                                                     T& largest) const {
    const T g = factor * gradient + coupled_decay * parameter;
    first += beta1_rest * (g - first);
    second = beta2 * second + beta2_rest * g * g;
    T held = second;
    if constexpr (amsgrad) held = largest = largest > second ? largest : second;
    const T denominator = math::sqrt(held) / root_correction2 + eps;
    parameter = parameter * shrink - step_size * first / denominator;
  }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
