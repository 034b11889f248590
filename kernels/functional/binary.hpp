#pragma once

#include "functional/constants.hpp"
#include "functional/math.hpp"

/// @file
/// Elementwise functions of two operands, over the accumulation type T. Where an X is among them it
/// is a T or a math::CloseOperand.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// a + alpha * b
template <class T>
struct Add : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T a, T b) const {
    return static_cast<T>(Modular<T>(a) + Modular<T>(this->alpha) * Modular<T>(b));
  }
  LOCKSTEP_HD T gradient_a(T dy, T, T) const { return dy; }
  LOCKSTEP_HD T gradient_b(T dy, T, T) const { return this->alpha * dy; }
};

/// a - alpha * b
template <class T>
struct Sub : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T a, T b) const {
    return static_cast<T>(Modular<T>(a) - Modular<T>(this->alpha) * Modular<T>(b));
  }
  LOCKSTEP_HD T gradient_a(T dy, T, T) const { return dy; }
  LOCKSTEP_HD T gradient_b(T dy, T, T) const { return -this->alpha * dy; }
};

/// a * b
template <class T>
struct Mul : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T a, T b) const { return static_cast<T>(Modular<T>(a) * Modular<T>(b)); }
  LOCKSTEP_HD T gradient_a(T dy, T, T b) const { return dy * b; }
  LOCKSTEP_HD T gradient_b(T dy, T a, T) const { return dy * a; }
};

/// a / b; integers truncate, and give 0 for division by 0.
template <class T>
struct Div : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T a, T b) const {
    if constexpr (is_integer<T>) {
      if (b == 0) return 0;
      // The quotient of the smallest integer by -1 would trap.
      return b == -1 ? static_cast<T>(Modular<T>(0) - Modular<T>(a)) : a / b;
    } else {
      return a / b;
    }
  }
  LOCKSTEP_HD T gradient_a(T dy, T, T b) const { return dy / b; }
  // Dividing twice: the square of b would overflow or underflow long before the gradient does.
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const { return -dy * (a / b / b); }
};

/// a / b rounded down, as `//` of Python and `div_floor` of PyTorch: a quotient that rounds up to a
/// whole number is not taken for it. Integers give 0 for division by 0. The gradient is 0.
template <class T>
struct FloorDivide : Constants<T> {
  using Constants<T>::Constants;
  template <class X>
  LOCKSTEP_HD T forward(X dividend, X divisor) const {
    const T a = math::number_of(dividend), b = math::number_of(divisor);
    if constexpr (is_integer<T>) {
      const T quotient = Div<T>(OpConstants{}).forward(a, b);
      // Modulo 2^64, as the product may overflow; by 0 all of a would be left.
      const T rest = static_cast<T>(Modular<T>(a) - Modular<T>(quotient) * Modular<T>(b));
      return b != 0 && rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
    } else {
      const T rest = math::fmod(dividend, divisor);
      const T nearly = (a - rest) / b;  // whole, but for its rounding
      const bool is_above = (rest != 0) & ((rest < 0) != (b < 0));
      const T quotient = is_above ? nearly - 1 : nearly;
      const T whole = math::floor(quotient);
      const T nearest = quotient - whole > T(0.5) ? whole + 1 : whole;
      const T ratio = a / b;
      const T result = quotient == 0 ? T(0) * ratio : nearest;  // a zero of the right sign
      return b == 0 ? ratio : result;
    }
  }
  LOCKSTEP_HD T gradient_a(T, T, T) const { return T(0); }
  LOCKSTEP_HD T gradient_b(T, T, T) const { return T(0); }
};

/// What division rounded down leaves, as `%` of Python and `remainder` of PyTorch: with the sign of
/// b. Integers give 0 for division by 0. The quotient counts as constant.
template <class T>
struct Remainder : Constants<T> {
  using Constants<T>::Constants;
  template <class X>
  LOCKSTEP_HD T forward(X a, X divisor) const {
    const T b = math::number_of(divisor);
    T rest;
    if constexpr (is_integer<T>)
      rest = b == 0 || b == -1 ? 0 : a % b;  // by -1 the least i64 would trap; nothing is left
    else
      rest = math::fmod(a, divisor);
    return (rest != 0) & ((rest < 0) != (b < 0)) ? rest + b : rest;
  }
  template <class X>
  LOCKSTEP_HD T gradient_a(T dy, X, X) const {
    return dy;
  }
  template <class X>
  LOCKSTEP_HD T gradient_b(T dy, X a, X b) const {
    return -dy * FloorDivide<T>(OpConstants{}).forward(a, b);
  }
};

/// What division towards 0 leaves, as fmod of C and PyTorch: with the sign of a. Integers give 0
/// for division by 0. The quotient counts as constant.
template <class T>
struct Fmod : Constants<T> {
  using Constants<T>::Constants;
  template <class X>
  LOCKSTEP_HD T forward(X a, X b) const {
    if constexpr (is_integer<T>)
      return b == 0 || b == -1 ? 0 : a % b;  // by -1 the least i64 would trap; nothing is left
    else
      return math::fmod(a, b);
  }
  LOCKSTEP_HD T gradient_a(T dy, T, T) const { return dy; }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const { return -dy * math::trunc(a / b); }
};

/// The angle of the point (b, a), within [-pi, pi]. At (0, 0) the gradient is 0.
template <class T>
struct Atan2 : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const { return math::atan2(a, b); }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const { return dy * over_squares(b, a, b); }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const { return -dy * over_squares(a, a, b); }

 private:
  // x / (a^2 + b^2), where squares might overflow or underflow.
  LOCKSTEP_HD static T over_squares(T x, T a, T b) {
    const T largest = math::abs(a) > math::abs(b) || a != a ? math::abs(a) : math::abs(b);
    if (largest == T(0)) return T(0);
    if (largest > std::numeric_limits<T>::max()) return x / largest;
    const T u = a / largest, v = b / largest;
    return x / largest / (u * u + v * v) / largest;
  }
};

/// The larger one; NaN where either is. Equal operands share the gradient.
template <class T>
struct Maximum : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T a, T b) const { return a > b || a != a ? a : b; }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const { return share(dy, a, b); }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const { return share(dy, b, a); }

 private:
  LOCKSTEP_HD static T share(T dy, T mine, T other) {
    return mine < other ? T(0) : (mine == other ? dy / 2 : dy);
  }
};

/// The smaller one; NaN where either is. Equal operands share the gradient; beside NaN both get it.
template <class T>
struct Minimum : Constants<T> {
  using Constants<T>::Constants;
  LOCKSTEP_HD T forward(T a, T b) const { return a < b || a != a ? a : b; }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const { return share(dy, a, b); }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const { return share(dy, b, a); }

 private:
  LOCKSTEP_HD static T share(T dy, T mine, T other) {
    return mine > other ? T(0) : (mine == other ? dy / 2 : dy);
  }
};

/// a to the power b
template <class T>
struct Pow : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const { return math::pow(a, b); }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const {
    return b == T(0) ? T(0) : dy * b * math::pow(a, b - 1);
  }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const {
    // 0 to any power but a negative one is constant in the exponent, though log 0 is infinite.
    return a == T(0) && b >= T(0) ? T(0) : dy * math::pow(a, b) * math::log(a);
  }
};

/// silu(a) * b (Shazeer 2020)
template <class T>
struct Swiglu : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const { return a * math::sigmoid(a) * b; }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const {
    const T s = math::sigmoid(a);
    return dy * b * s * (1 + a * (1 - s));
  }
  LOCKSTEP_HD T gradient_b(T dy, T a, T) const { return dy * a * math::sigmoid(a); }
};

/// a * sigmoid(b) (Dauphin et al. 2017)
template <class T>
struct Glu : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const { return a * math::sigmoid(b); }
  LOCKSTEP_HD T gradient_a(T dy, T, T b) const { return dy * math::sigmoid(b); }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const {
    const T s = math::sigmoid(b);
    return dy * a * (s * (1 - s));
  }
};

/// a where it is above 0, else b times as much (He et al. 2015).
template <class T>
struct Prelu : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const { return a > 0 ? a : b * a; }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const { return a > 0 ? dy : b * dy; }
  LOCKSTEP_HD T gradient_b(T dy, T a, T) const { return a > 0 ? T(0) : dy * a; }
};

/// (a - b)^2
template <class T>
struct MseLoss : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const { return (a - b) * (a - b); }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const { return 2 * dy * (a - b); }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const { return 2 * dy * (b - a); }
};

/// Huber's loss of an error e = a - b: e^2 / 2 up to alpha, from there on linear (Huber 1964).
template <class T>
struct HuberLoss : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const {
    const T error = a - b, slope = near(error);
    return slope * (error - slope / 2);  // on both sides of alpha
  }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const { return dy * near(a - b); }
  LOCKSTEP_HD T gradient_b(T dy, T a, T b) const { return -dy * near(a - b); }

 private:
  /// NaN where the error is: a GradScaler looks at gradients alone.
  LOCKSTEP_HD T near(T error) const {
    const T raised = error < -this->alpha ? -this->alpha : error;
    return raised > this->alpha ? this->alpha : raised;
  }
};

/// Cross-entropy of a probability a against a target b: -(b log(a) + (1 - b) log(1 - a)). As in
/// PyTorch, no logarithm counts less than -100, and the divisor of the gradient not less than
/// 1e-12.
template <class T>
struct BinaryCrossEntropy : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const {
    return -(b * bounded(math::log(a)) + (1 - b) * bounded(math::log1p(-a)));
  }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const {
    const T slope = (1 - a) * a;
    constexpr T least = T(1e-12F);  // the constant of PyTorch, in f64 too
    return dy * (a - b) / (slope < least ? least : slope);
  }
  LOCKSTEP_HD T gradient_b(T dy, T a, T) const {
    // log(1 - a) - log(a) in terms of the smaller of both, for 1 - 2p is exact where they are
    // close.
    const bool likely = a > T(0.5);
    const T p = likely ? 1 - a : a, odds = math::log1p((1 - 2 * p) / p);
    const T limited = odds > T(100) ? T(100) : odds;
    return likely ? -dy * limited : dy * limited;
  }

 private:
  LOCKSTEP_HD static T bounded(T logarithm) { return logarithm < T(-100) ? T(-100) : logarithm; }
};

/// The same of the probability sigmoid(a): (1 - b) a + log(1 + e^-a).
template <class T>
struct BinaryCrossEntropyWithLogits : FloatingConstants<T> {
  using FloatingConstants<T>::FloatingConstants;
  LOCKSTEP_HD T forward(T a, T b) const {
    return (1 - b) * a + ((a < 0 ? -a : T(0)) + math::log1p(rest(a)));
  }
  LOCKSTEP_HD T gradient_a(T dy, T a, T b) const {
    const T e = rest(a), unlikely = e / (1 + e);  // the smaller one of sigmoid(a) and sigmoid(-a)
    return dy * (a < 0 ? unlikely - b : (1 - b) - unlikely);
  }
  LOCKSTEP_HD T gradient_b(T dy, T a, T) const { return -dy * a; }

 private:
  LOCKSTEP_HD static T rest(T a) { return math::exp(a < 0 ? a : -a); }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
