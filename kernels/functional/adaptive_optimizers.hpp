#pragma once

#include "functional/math.hpp"
#include "functional/optimizer_step.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Rules that scale each element by its past gradients.

namespace lockstep {

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
    double beta2, beta2_rest;
    // The correction of the root, sqrt(1 - beta2^t), is in these two, not in each element's divisor
    // (Kingma and Ba 2014, end of section 2).
    double eps;        ///< times the correction
    double step_size;  ///< lr / (1 - beta1^t), times the correction
  };
  static constexpr int least_states = 2, most_states = 3;
  int states() const { return amsgrad ? 3 : 2; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    namespace math = functional::math;
    const auto number = static_cast<double>(step.number);
    const double correction = math::sqrt(1 - math::pow(beta2, number));
    return {.gradient_factor = step.gradient_factor(maximize),
            .coupled_decay = decoupled_decay ? 0.0 : weight_decay,
            .shrink = decoupled_decay ? 1 - step.lr * weight_decay : 1.0,
            .beta1_rest = 1 - beta1,
            .beta2 = beta2,
            .beta2_rest = 1 - beta2,
            .eps = eps * correction,
            .step_size = step.lr * correction / (1 - math::pow(beta1, number))};
  }
};

/// Adam with Nesterov momentum (Dozat 2016), the momentum of a step as PyTorch has it.
struct NAdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0, momentum_decay = 4e-3;
  bool decoupled_decay = false, maximize = false;

  struct Coefficients {
    double gradient_factor, coupled_decay, shrink, beta1_rest, beta2, beta2_rest, eps;
    double gradient_step;  ///< lr (1 - mu_t) / (1 - mu_1 ... mu_t)
    double momentum_step;  ///< lr mu_(t+1) / (1 - mu_1 ... mu_(t+1))
    double root_correction2;
    double carried;  ///< mu_1 ... mu_t
  };
  static constexpr int least_states = 2, most_states = 2;
  int states() const { return 2; }
  LOCKSTEP_HD double momentum_at(double number) const {
    return beta1 * (1 - 0.5 * functional::math::pow(0.96, number * momentum_decay));
  }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    namespace math = functional::math;
    const auto number = static_cast<double>(step.number);
    const double now = momentum_at(number), next = momentum_at(number + 1);
    const double product = step.number == 1 ? now : step.carried * now;
    return {.gradient_factor = step.gradient_factor(maximize),
            .coupled_decay = decoupled_decay ? 0.0 : weight_decay,
            .shrink = decoupled_decay ? 1 - step.lr * weight_decay : 1.0,
            .beta1_rest = 1 - beta1,
            .beta2 = beta2,
            .beta2_rest = 1 - beta2,
            .eps = eps,
            .gradient_step = step.lr * (1 - now) / (1 - product),
            .momentum_step = step.lr * next / (1 - product * next),
            .root_correction2 = math::sqrt(1 - math::pow(beta2, number)),
            .carried = product};
  }
};

/// Rectified Adam (Liu et al. 2019): without the denominator until its variance is bounded.
struct RAdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool decoupled_decay = false, maximize = false;

  struct Coefficients {
    double gradient_factor, coupled_decay, shrink, beta1_rest, beta2, beta2_rest, eps;
    double step_size;      ///< lr / (1 - beta1^t)
    double rectification;  ///< times sqrt(1 - beta2^t): what is divided by the denominator
    bool rectified;
  };
  static constexpr int least_states = 2, most_states = 2;
  int states() const { return 2; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    namespace math = functional::math;
    const auto number = static_cast<double>(step.number);
    const double power2 = math::pow(beta2, number);
    const double limit = 2 / (1 - beta2) - 1;
    const double length = limit - 2 * number * power2 / (1 - power2);
    const bool rectified = length > 5;
    const double ratio = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length);
    return {.gradient_factor = step.gradient_factor(maximize),
            .coupled_decay = decoupled_decay ? 0.0 : weight_decay,
            .shrink = decoupled_decay ? 1 - step.lr * weight_decay : 1.0,
            .beta1_rest = 1 - beta1,
            .beta2 = beta2,
            .beta2_rest = 1 - beta2,
            .eps = eps,
            .step_size = step.lr / (1 - math::pow(beta1, number)),
            .rectification = rectified ? math::sqrt(ratio * (1 - power2)) : 1.0,
            .rectified = rectified};
  }
};

/// Adam by the infinity norm (Kingma and Ba 2014, section 7.1).
struct AdamaxRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool maximize = false;

  struct Coefficients {
    double gradient_factor, coupled_decay, beta1_rest, beta2, eps;
    double step_size;  ///< lr / (1 - beta1^t)
  };
  static constexpr int least_states = 2, most_states = 2;
  int states() const { return 2; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    const auto number = static_cast<double>(step.number);
    return {.gradient_factor = step.gradient_factor(maximize),
            .coupled_decay = weight_decay,
            .beta1_rest = 1 - beta1,
            .beta2 = beta2,
            .eps = eps,
            .step_size = step.lr / (1 - functional::math::pow(beta1, number))};
  }
};

/// Adagrad (Duchi, Hazan and Singer 2011).
struct AdagradRule {
  double lr_decay = 0.0, weight_decay = 0.0, initial_accumulator_value = 0.0, eps = 1e-10;
  bool maximize = false;

  struct Coefficients {
    double gradient_factor, coupled_decay, eps;
    double step_size;  ///< lr / (1 + (t - 1) lr_decay)
    double initial;    ///< what the sum begins with, in the first step
  };
  static constexpr int least_states = 1, most_states = 1;
  int states() const { return 1; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    return {.gradient_factor = step.gradient_factor(maximize),
            .coupled_decay = weight_decay,
            .eps = eps,
            .step_size = step.lr / (1 + static_cast<double>(step.number - 1) * lr_decay),
            .initial = step.number == 1 ? initial_accumulator_value : 0.0};
  }
};

/// RMSprop (Tieleman and Hinton 2012), centered by Graves (2013).
struct RMSpropRule {
  double alpha = 0.99, eps = 1e-8, weight_decay = 0.0, momentum = 0.0;
  bool centered = false, maximize = false;

  struct Coefficients {
    double gradient_factor, coupled_decay, lr, alpha, alpha_rest, eps, momentum;
    bool centered;
  };
  /// The mean of squares; where centered, the mean; with momentum, its buffer.
  static constexpr int least_states = 1, most_states = 3;
  int states() const { return 1 + (centered ? 1 : 0) + (momentum != 0 ? 1 : 0); }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    return {.gradient_factor = step.gradient_factor(maximize),
            .coupled_decay = weight_decay,
            .lr = step.lr,
            .alpha = alpha,
            .alpha_rest = 1 - alpha,
            .eps = eps,
            .momentum = momentum,
            .centered = centered};
  }
};

}  // namespace lockstep

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// Scale and sign taken off the gradient, and decay that is coupled added to it.
template <class Coefficients, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T decayed(const Coefficients& c, T parameter, T gradient) {
  return T(c.gradient_factor) * gradient + T(c.coupled_decay) * parameter;
}

/// Adam. @param largest AMSGrad's: the largest second moment so far.
template <class T, class... Largest>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const AdamRule::Coefficients& c, T& parameter,
                                               T gradient, T& first, T& second,
                                               Largest&... largest) {
  const T g = decayed(c, parameter, gradient);
  first += T(c.beta1_rest) * (g - first);
  second = T(c.beta2) * second + T(c.beta2_rest) * g * g;
  T held = second;
  ((held = largest = largest > second ? largest : second), ...);
  const T denominator = math::sqrt(held) + T(c.eps);
  parameter = parameter * T(c.shrink) - T(c.step_size) * first / denominator;
}

/// NAdam: a step along the momentum of the step to come.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const NAdamRule::Coefficients& c, T& parameter,
                                               T gradient, T& first, T& second) {
  const T g = decayed(c, parameter, gradient);
  first += T(c.beta1_rest) * (g - first);
  second = T(c.beta2) * second + T(c.beta2_rest) * g * g;
  const T denominator = math::sqrt(second) / T(c.root_correction2) + T(c.eps);
  parameter =
      parameter * T(c.shrink) - (T(c.gradient_step) * g + T(c.momentum_step) * first) / denominator;
}

/// RAdam.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const RAdamRule::Coefficients& c, T& parameter,
                                               T gradient, T& first, T& second) {
  const T g = decayed(c, parameter, gradient);
  first += T(c.beta1_rest) * (g - first);
  second = T(c.beta2) * second + T(c.beta2_rest) * g * g;
  const T denominator = c.rectified ? math::sqrt(second) + T(c.eps) : T(1);
  parameter = parameter * T(c.shrink) - T(c.step_size) * T(c.rectification) * first / denominator;
}

/// Adamax.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const AdamaxRule::Coefficients& c, T& parameter,
                                               T gradient, T& first, T& largest) {
  const T g = decayed(c, parameter, gradient);
  first += T(c.beta1_rest) * (g - first);
  const T faded = T(c.beta2) * largest, now = math::abs(g) + T(c.eps);
  largest = faded > now ? faded : now;
  parameter -= T(c.step_size) * first / largest;
}

/// Adagrad.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const AdagradRule::Coefficients& c, T& parameter,
                                               T gradient, T& sum) {
  const T g = decayed(c, parameter, gradient);
  sum += T(c.initial) + g * g;
  parameter -= T(c.step_size) * g / (math::sqrt(sum) + T(c.eps));
}

/// RMSprop without momentum that is not centered.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const RMSpropRule::Coefficients& c, T& parameter,
                                               T gradient, T& square) {
  const T g = decayed(c, parameter, gradient);
  square = T(c.alpha) * square + T(c.alpha_rest) * g * g;
  parameter -= T(c.lr) * g / (math::sqrt(square) + T(c.eps));
}

/// RMSprop, centered with momentum.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const RMSpropRule::Coefficients& c, T& parameter,
                                               T gradient, T& square, T& mean, T& momentum) {
  const T g = decayed(c, parameter, gradient);
  square = T(c.alpha) * square + T(c.alpha_rest) * g * g;
  mean += T(c.alpha_rest) * (g - mean);
  const T variance = square - mean * mean;  // below 0 only by rounding
  momentum = T(c.momentum) * momentum + g / (math::sqrt(variance > 0 ? variance : T(0)) + T(c.eps));
  parameter -= T(c.lr) * momentum;
}

/// RMSprop, centered or with momentum: the other one has no effect.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const RMSpropRule::Coefficients& c, T& parameter,
                                               T gradient, T& square, T& other) {
  const T g = decayed(c, parameter, gradient);
  square = T(c.alpha) * square + T(c.alpha_rest) * g * g;
  const T mean = c.centered ? other + T(c.alpha_rest) * (g - other) : T(0);
  const T variance = square - mean * mean;  // below 0 only by rounding
  const T scaled = g / (math::sqrt(variance > 0 ? variance : T(0)) + T(c.eps));
  const T momentum = c.centered ? scaled : T(c.momentum) * other + scaled;
  other = c.centered ? mean : momentum;
  parameter -= T(c.lr) * momentum;
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
