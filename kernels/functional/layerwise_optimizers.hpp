#pragma once

#include "functional/math.hpp"
#include "functional/optimizer_step.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Rules that scale each tensor's step by norms of the tensor. Beside what every rule has, they
/// have `measure`, which runs over all elements before `update` and changes nothing: it gives the
/// two numbers whose squares are summed for OptimizerStep::parameter_square and update_square.

namespace lockstep {

/// The ratio of two norms, from their squares; 1 where one of them is 0.
LOCKSTEP_HD inline double trust_ratio(double parameter, double update) {
  return parameter > 0 && update > 0 ? parameter / update : 1.0;
}

/// LARS (You, Gitman and Ginsburg 2017): momentum SGD with a rate for each tensor.
struct LarsRule {
  double momentum = 0.9, weight_decay = 0.0, trust_coefficient = 1e-3, eps = 1e-8;
  bool adapt = true, maximize = false;

  struct Coefficients {
    double gradient_factor, momentum, weight_decay;
    double rate;  ///< lr, times the tensor's own
  };
  static constexpr int least_states = 1, most_states = 1;
  int states() const { return 1; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    namespace math = functional::math;
    const double parameter = math::sqrt(step.parameter_square);
    const double gradient = math::sqrt(step.update_square);
    const bool adapts = adapt && parameter > 0 && gradient > 0;
    const double own =
        adapts ? trust_coefficient * parameter / (gradient + weight_decay * parameter + eps) : 1.0;
    return {.gradient_factor = step.gradient_factor(maximize),
            .momentum = momentum,
            .weight_decay = weight_decay,
            .rate = step.lr * own};
  }
};

/// LAMB (You et al. 2019): Adam's direction, as long as the parameter.
struct LambRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.01;
  bool adapt = true, maximize = false;

  struct Coefficients {
    double gradient_factor, beta1_rest, beta2, beta2_rest, eps, weight_decay;
    double correction1;       ///< 1 / (1 - beta1^t)
    double root_correction2;  ///< sqrt(1 - beta2^t)
    double rate;              ///< lr, times the tensor's own
  };
  static constexpr int least_states = 2, most_states = 2;
  int states() const { return 2; }
  LOCKSTEP_HD Coefficients coefficients(const OptimizerStep& step) const {
    namespace math = functional::math;
    const auto number = static_cast<double>(step.number);
    const double own =
        adapt ? trust_ratio(math::sqrt(step.parameter_square), math::sqrt(step.update_square))
              : 1.0;
    return {.gradient_factor = step.gradient_factor(maximize),
            .beta1_rest = 1 - beta1,
            .beta2 = beta2,
            .beta2_rest = 1 - beta2,
            .eps = eps,
            .weight_decay = weight_decay,
            .correction1 = 1 / (1 - math::pow(beta1, number)),
            .root_correction2 = math::sqrt(1 - math::pow(beta2, number)),
            .rate = step.lr * own};
  }
};

}  // namespace lockstep

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// Two numbers of an element that count by their squares.
template <class T>
struct Measured {
  T parameter, update;
};

/// LARS: parameter and gradient.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE Measured<T> measure(const LarsRule::Coefficients& c, T parameter,
                                                       T gradient, T) {
  return {parameter, T(c.gradient_factor) * gradient};
}

template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const LarsRule::Coefficients& c, T& parameter,
                                               T gradient, T& momentum) {
  const T g = T(c.gradient_factor) * gradient + T(c.weight_decay) * parameter;
  momentum = T(c.momentum) * momentum + T(c.rate) * g;
  parameter -= momentum;
}

/// Where LAMB goes, in units of the learning rate.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T direction(const LambRule::Coefficients& c, T parameter,
                                               T first, T second) {
  return T(c.correction1) * first / (math::sqrt(second) / T(c.root_correction2) + T(c.eps)) +
         T(c.weight_decay) * parameter;
}

/// LAMB's moments take in the gradient.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void take_in(const LambRule::Coefficients& c, T gradient,
                                                T& first, T& second) {
  const T g = T(c.gradient_factor) * gradient;
  first += T(c.beta1_rest) * (g - first);
  second = T(c.beta2) * second + T(c.beta2_rest) * g * g;
}

/// LAMB: parameter and direction.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE Measured<T> measure(const LambRule::Coefficients& c, T parameter,
                                                       T gradient, T first, T second) {
  take_in(c, gradient, first, second);
  return {parameter, direction(c, parameter, first, second)};
}

template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void update(const LambRule::Coefficients& c, T& parameter,
                                               T gradient, T& first, T& second) {
  take_in(c, gradient, first, second);
  parameter -= T(c.rate) * direction(c, parameter, first, second);
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA

/// The rules by layer; they are among all rules too.
#define LOCKSTEP_LAYERWISE_OPTIMIZERS(OPTIMIZER) \
  OPTIMIZER(lars, LarsRule)                      \
  OPTIMIZER(lamb, LambRule)
