#pragma once

#include <cstdint>

#include "functional/adaptive_optimizers.hpp"
#include "functional/layerwise_optimizers.hpp"
#include "functional/math.hpp"
#include "functional/optimizer_step.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// The rules of optimizers, as PyTorch computes them where it has them. A rule has three parts: its
/// options, which say how many states an element has; the coefficients of one step, in double; and
/// `update` of one element over the accumulation type T, with as many states. Kernels of every
/// device and their tables are made from the list at the end.

namespace lockstep {

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
    return {.gradient_factor = step.gradient_factor(maximize),
            .lr = step.lr,
            .momentum = momentum,
            .dampening_rest = 1 - dampening,
            .weight_decay = weight_decay,
            .nesterov = nesterov,
            .first_step = step.number == 1};
  }
};

/// Lion (Chen et al. 2023).
struct LionRule {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0.0;
  bool maximize = false;

  struct Coefficients {
    double gradient_factor, lr, shrink, beta1, beta2;
  };
  static constexpr int least_states = 1, most_states = 1;
  int states() const { return 1; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    return {.gradient_factor = step.gradient_factor(maximize),
            .lr = step.lr,
            .shrink = 1 - step.lr * weight_decay,
            .beta1 = beta1,
            .beta2 = beta2};
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

/// Lion: the sign of a blend of momentum and gradient.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const LionRule::Coefficients& c, T& parameter,
                                               T gradient, T& momentum) {
  const T g = T(c.gradient_factor) * gradient;
  const T blend = g + T(c.beta1) * (momentum - g);
  parameter = T(c.shrink) * parameter - T(c.lr) * (T(blend > 0) - T(blend < 0));
  momentum = g + T(c.beta2) * (momentum - g);
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA

/// All rules: OPTIMIZER(name, Rule), the name that of the entry among a backend's kernels.
#define LOCKSTEP_OPTIMIZERS(OPTIMIZER) \
  OPTIMIZER(sgd, SgdRule)              \
  OPTIMIZER(adam, AdamRule)            \
  OPTIMIZER(nadam, NAdamRule)          \
  OPTIMIZER(radam, RAdamRule)          \
  OPTIMIZER(adamax, AdamaxRule)        \
  OPTIMIZER(adagrad, AdagradRule)      \
  OPTIMIZER(rmsprop, RMSpropRule)      \
  OPTIMIZER(lion, LionRule)            \
  LOCKSTEP_LAYERWISE_OPTIMIZERS(OPTIMIZER)
