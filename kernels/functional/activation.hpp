#pragma once

#include "functional/constants.hpp"
#include "functional/math.hpp"

/// @file
/// Activation functions, over the accumulation type T (the conventions of unary.hpp).

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// 1 / (1 + e^-x)
template <class T>
struct Sigmoid : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::sigmoid(x); }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return dy * y * (1 - y); }
};

/// max(x, 0); NaN stays.
template <class T>
struct Relu : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const { return x < 0 ? T(0) : x; }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return y <= 0 ? T(0) : dy; }
};

/// x * sigmoid(x)
template <class T>
struct Silu : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return x * math::sigmoid(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    const T s = math::sigmoid(x);
    return dy * s * (1 + x * (1 - s));
  }
};

/// x * Phi(x), the Gaussian error linear unit (Hendrycks and Gimpel 2016).
template <class T>
struct Gelu : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  static constexpr double sqrt_half = 0.70710678118654752440;
  static constexpr double inverse_sqrt_two_pi = 0.39894228040143267794;
  LOCKSTEP_HD T forward(T x) const { return x * normal_cdf(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    const T density = T(inverse_sqrt_two_pi) * math::exp(T(-0.5) * x * x);
    return dy * (normal_cdf(x) + x * density);
  }

 private:
  LOCKSTEP_HD static T normal_cdf(T x) { return T(0.5) * (1 + math::erf(x * T(sqrt_half))); }
};

/// The tanh form of GELU: 0.5 x (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
struct GeluTanh : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  static constexpr double twice_sqrt_two_over_pi = 1.5957691216057307117;
  static constexpr double cubic = 0.044715;
  LOCKSTEP_HD T forward(T x) const { return x * math::sigmoid(twice_u(x)); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    const T s = math::sigmoid(twice_u(x));
    const T slope = T(twice_sqrt_two_over_pi) * (1 + T(3 * cubic) * x * x);
    return dy * s * (1 + x * slope * (1 - s));
  }

 private:
  LOCKSTEP_HD static T twice_u(T x) {
    return T(twice_sqrt_two_over_pi) * x * (1 + T(cubic) * x * x);
  }
};

/// log(1 + e^x)
template <class T>
struct Softplus : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const {
    return (x > 0 ? x : T(0)) + math::log1p(math::exp(-math::abs(x)));
  }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy * math::sigmoid(x); }
};

/// x * tanh(softplus(x)) (Misra 2019), with tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2).
template <class T>
struct Mish : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return x * tanh_softplus(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    const T t = tanh_softplus(x);
    return dy * (t + x * (1 - t * t) * math::sigmoid(x));
  }

 private:
  // Past the bound the quotient is 1 to the last bit, and e^2 could overflow.
  static constexpr T bound = 30;
  LOCKSTEP_HD static T tanh_softplus(T x) {
    const T e = math::exp(x > bound ? bound : x);
    const T n = e * (e + 2);
    return n / (n + 2);
  }
};

/// x for x > 0, else alpha * (e^x - 1) (Clevert et al. 2015).
template <class T>
struct Elu : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return x > 0 ? x : this->alpha * math::expm1(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    return x > 0 ? dy : dy * this->alpha * math::exp(x);
  }
};

/// x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019).
template <class T>
struct Hardswish : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const {
    const T raised = x + 3 < 0 ? T(0) : x + 3;
    return x * (raised > 6 ? T(6) : raised) / 6;
  }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    return x <= -3 ? T(0) : (x >= 3 ? dy : dy * (x / 3 + T(0.5)));
  }
};

/// x for x > 0, else alpha * x.
template <class T>
struct LeakyRelu : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return x > 0 ? x : this->alpha * x; }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return x > 0 ? dy : this->alpha * dy; }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
