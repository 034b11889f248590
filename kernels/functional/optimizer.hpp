#pragma once

#include <cstdint>

#include "functional/math.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// The rules of optimizers, as PyTorch computes them. A rule has three parts: its options, which
/// say how many states an element has; the coefficients of one step, in double; and `update` of one
/// element over the accumulation type T, with as many states. Kernels of every device and their
/// tables are made from the list at the end.

namespace lockstep {

/// What changes from step to step.
struct OptimizerStep {
  double lr;
  double unscaling;     ///< factor that takes the loss scale off the gradient
  std::int64_t number;  ///< of the tensor's step, from 1
};

/// States that an element has at most.
inline constexpr int most_optimizer_states = 3;

/// Stochastic gradient descent with momentum (Sutskever et al. 2013).
struct SgdRule {
  double momentum = 0.0, dampening = 0.0, weight_decay = 0.0;
  bool nesterov = false, maximize = false;

  struct Coefficients {
    double gradient_factor;                             ///< takes scale and sign off the gradient
    double lr, momentum, dampening_rest, weight_decay;  ///< dampening_rest = 1 - dampening
    bool nesterov, first_step;
  };
  static constexpr int least_states = 0, most_states = 1;
  int states() const { return momentum != 0; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    return {.gradient_factor = (maximize ? -1.0 : 1.0) * step.unscaling,
            .lr = step.lr,
            .momentum = momentum,
            .dampening_rest = 1 - dampening,
            .weight_decay = weight_decay,
            .nesterov = nesterov,
            .first_step = step.number == 1};
  }
};

/// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017), AMSGrad (Reddi et al. 2018).
struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool decoupled_decay = false;  ///< AdamW
  bool amsgrad = false, maximize = false;

  struct Coefficients {
    double gradient_factor;  ///< takes scale and sign off the gradient
    double coupled_decay;    ///< added to the gradient, times the parameter (Adam)
    double shrink;           ///< factor on the parameter: 1 - lr * decay (AdamW), else 1
    double beta1_rest;       ///< 1 - beta1
    double beta2, beta2_rest, eps;
    double step_size;         ///< lr / (1 - beta1^t)
    double root_correction2;  ///< sqrt(1 - beta2^t)
  };
  static constexpr int least_states = 2, most_states = 3;
  int states() const { return amsgrad ? 3 : 2; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    namespace math = functional::math;
    const auto number = static_cast<double>(step.number);
    return {.gradient_factor = (maximize ? -1.0 : 1.0) * step.unscaling,
            .coupled_decay = decoupled_decay ? 0.0 : weight_decay,
            .shrink = decoupled_decay ? 1 - step.lr * weight_decay : 1.0,
            .beta1_rest = 1 - beta1,
            .beta2 = beta2,
            .beta2_rest = 1 - beta2,
            .eps = eps,
            .step_size = step.lr / (1 - math::pow(beta1, number)),
            .root_correction2 = math::sqrt(1 - math::pow(beta2, number))};
  }
};

}  // namespace lockstep

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// SGD without momentum.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const SgdRule::Coefficients& c, T& parameter,
                                               T gradient) {
  parameter -= T(c.lr) * (T(c.gradient_factor) * gradient + T(c.weight_decay) * parameter);
}

/// SGD with momentum.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const SgdRule::Coefficients& c, T& parameter,
                                               T gradient, T& momentum) {
  const T g = T(c.gradient_factor) * gradient + T(c.weight_decay) * parameter;
  momentum = c.first_step ? g : T(c.momentum) * momentum + T(c.dampening_rest) * g;
  parameter -= T(c.lr) * (c.nesterov ? g + T(c.momentum) * momentum : momentum);
}

/// Adam. @param largest AMSGrad's: the largest second moment so far.
template <class T, class... Largest>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const AdamRule::Coefficients& c, T& parameter,
                                               T gradient, T& first, T& second,
                                               Largest&... largest) {
  const T g = T(c.gradient_factor) * gradient + T(c.coupled_decay) * parameter;
  first += T(c.beta1_rest) * (g - first);
  second = T(c.beta2) * second + T(c.beta2_rest) * g * g;
  T held = second;
  ((held = largest = largest > second ? largest : second), ...);
  const T denominator = math::sqrt(held) / T(c.root_correction2) + T(c.eps);
  parameter = parameter * T(c.shrink) - T(c.step_size) * first / denominator;
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA

/// All rules: OPTIMIZER(name, Rule), the name that of the entry among a backend's kernels.
#define LOCKSTEP_OPTIMIZERS(OPTIMIZER) \
  OPTIMIZER(sgd, SgdRule)              \
  OPTIMIZER(adam, AdamRule)
