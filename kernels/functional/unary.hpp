#pragma once

#include <limits>

#include "functional/activation.hpp"
#include "functional/constants.hpp"
#include "functional/math.hpp"

/// @file
/// Elementwise functions of one operand, over the accumulation type T: forward(x), and
/// gradient(dy, x, y), of which only what ops.def says is saved may be read.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// -x
template <class T>
struct Neg : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const { return static_cast<T>(-Modular<T>(x)); }
  LOCKSTEP_HD T gradient(T dy, T, T) const { return -dy; }
};

/// |x|; the gradient at 0 is 0.
template <class T>
struct Abs : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const {
    if constexpr (is_integer<T>)
      return x < 0 ? static_cast<T>(-Modular<T>(x)) : x;
    else
      return math::abs(x);
  }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return x > 0 ? dy : (x < 0 ? -dy : T(0)); }
};

/// -1, 0 or 1; 0 for NaN. The gradient is 0 everywhere.
template <class T>
struct Sign : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const { return T(x > 0) - T(x < 0); }
  LOCKSTEP_HD T gradient(T, T, T) const { return T(0); }
};

/// The largest whole number up to x; the gradient is 0, as that of all rounding.
template <class T>
struct Floor : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const {
    if constexpr (is_integer<T>)
      return x;
    else
      return math::floor(x);
  }
  LOCKSTEP_HD T gradient(T, T, T) const { return T(0); }
};

/// The smallest whole number from x on
template <class T>
struct Ceil : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const {
    if constexpr (is_integer<T>)
      return x;
    else
      return math::ceil(x);
  }
  LOCKSTEP_HD T gradient(T, T, T) const { return T(0); }
};

/// The nearest whole number; halves go to the even one.
template <class T>
struct Round : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const {
    if constexpr (is_integer<T>)
      return x;
    else
      return math::nearbyint(x);
  }
  LOCKSTEP_HD T gradient(T, T, T) const { return T(0); }
};

/// The whole number next to x on the side of 0
template <class T>
struct Trunc : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const {
    if constexpr (is_integer<T>)
      return x;
    else
      return math::trunc(x);
  }
  LOCKSTEP_HD T gradient(T, T, T) const { return T(0); }
};

/// x^2
template <class T>
struct Square : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const { return x * x; }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return 2 * dy * x; }
};

/// Square root
template <class T>
struct Sqrt : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::sqrt(x); }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return dy / (2 * y); }
};

/// 1 / sqrt(x)
template <class T>
struct Rsqrt : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return 1 / math::sqrt(x); }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return T(-0.5) * dy * y * y * y; }
};

/// 1 / x
template <class T>
struct Reciprocal : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return 1 / x; }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return -dy * y * y; }
};

/// e^x
template <class T>
struct Exp : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::exp(x); }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return dy * y; }
};

/// e^x - 1
template <class T>
struct Expm1 : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::expm1(x); }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return dy * (y + 1); }
};

/// Natural logarithm
template <class T>
struct Log : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::log(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy / x; }
};

/// Logarithm to the base 2
template <class T>
struct Log2 : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  static constexpr double one_over_ln2 = 1.4426950408889634074;
  LOCKSTEP_HD T forward(T x) const { return math::log2(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy * T(one_over_ln2) / x; }
};

/// Logarithm to the base 10
template <class T>
struct Log10 : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  static constexpr double one_over_ln10 = 0.43429448190325182765;
  LOCKSTEP_HD T forward(T x) const { return math::log10(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy * T(one_over_ln10) / x; }
};

/// log(1 + x)
template <class T>
struct Log1p : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::log1p(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy / (1 + x); }
};

/// Sine. An X is a T or a math::SmallAngle; so in Cos and Tan.
template <class T>
struct Sin : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  template <class X>
  LOCKSTEP_HD T forward(X x) const {
    return math::sin(x);
  }
  template <class X>
  LOCKSTEP_HD T gradient(T dy, X x, T) const {
    return dy * math::cos(x);
  }
};

/// Cosine
template <class T>
struct Cos : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  template <class X>
  LOCKSTEP_HD T forward(X x) const {
    return math::cos(x);
  }
  template <class X>
  LOCKSTEP_HD T gradient(T dy, X x, T) const {
    return -dy * math::sin(x);
  }
};

/// Tangent
template <class T>
struct Tan : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  template <class X>
  LOCKSTEP_HD T forward(X x) const {
    return math::tan(x);
  }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return dy * (1 + y * y); }
};

/// The angle whose tangent is x
template <class T>
struct Atan : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::atan(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy / (1 + x * x); }
};

/// The angle whose sine is x
template <class T>
struct Asin : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::asin(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy / math::sqrt((1 - x) * (1 + x)); }
};

/// The angle whose cosine is x
template <class T>
struct Acos : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::acos(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return -dy / math::sqrt((1 - x) * (1 + x)); }
};

/// Hyperbolic sine
template <class T>
struct Sinh : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::sinh(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy * math::cosh(x); }
};

/// Hyperbolic cosine
template <class T>
struct Cosh : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::cosh(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy * math::sinh(x); }
};

/// The number whose hyperbolic sine is x
template <class T>
struct Asinh : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::asinh(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy / math::sqrt(x * x + 1); }
};

/// The number from 0 on whose hyperbolic cosine is x
template <class T>
struct Acosh : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::acosh(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy / math::sqrt((x - 1) * (x + 1)); }
};

/// The number whose hyperbolic tangent is x
template <class T>
struct Atanh : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::atanh(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const { return dy / ((1 - x) * (1 + x)); }
};

/// Error function
template <class T>
struct Erf : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  static constexpr double two_over_sqrt_pi = 1.1283791670955125739;
  LOCKSTEP_HD T forward(T x) const { return math::erf(x); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    return dy * T(two_over_sqrt_pi) * math::exp(-x * x);
  }
};

/// Hyperbolic tangent
template <class T>
struct Tanh : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return math::tanh(x); }
  LOCKSTEP_HD T gradient(T dy, T, T y) const { return dy * (1 - y * y); }
};

/// min(max(x, alpha), beta); NaN stays. The gradient passes where alpha < x < beta, as in PyTorch;
/// an infinite bound is none.
template <class T>
struct Clamp : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const {
    const T raised = x < this->alpha ? this->alpha : x;
    return raised > this->beta ? this->beta : raised;
  }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    const bool is_above = x > this->alpha || this->alpha < std::numeric_limits<T>::lowest();
    const bool is_below = x < this->beta || this->beta > std::numeric_limits<T>::max();
    return is_above && is_below ? dy : T(0);
  }
};

/// x^alpha; a square is the product, on all devices, to the last bit.
template <class T>
struct PowScalar : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return power(x, this->alpha); }
  LOCKSTEP_HD T gradient(T dy, T x, T) const {
    return this->alpha == T(0) ? T(0) : dy * this->alpha * power(x, this->alpha - 1);
  }

 private:
  LOCKSTEP_HD static T power(T x, T exponent) {
    if (exponent == T(1)) return x;
    return exponent == T(2) ? x * x : math::pow(x, exponent);
  }
};

/// alpha * x + beta
template <class T>
struct Affine : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T x) const {
    return static_cast<T>(Modular<T>(this->alpha) * Modular<T>(x) + Modular<T>(this->beta));
  }
  LOCKSTEP_HD T gradient(T dy, T, T) const { return this->alpha * dy; }
};

/// x / alpha. Not x times 1 / alpha, which overflows where alpha is tiny.
template <class T>
struct DivScalar : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T x) const { return x / this->alpha; }
  LOCKSTEP_HD T gradient(T dy, T, T) const { return dy / this->alpha; }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
