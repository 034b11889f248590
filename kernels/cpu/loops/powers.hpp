#pragma once

#include "functional/unary.hpp"

/// @file
/// PowScalar by kinds of exponents. The compiler makes no loop of its own for each from the
/// branches within PowScalar, as they are too long.

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {

/// x
template <class T>
struct Identity : functional::FloatingConstants<T> {
  using functional::FloatingConstants<T>::FloatingConstants;
  T forward(T x) const { return x; }
  T gradient(T dy, T, T) const { return dy; }
};

/// x^3
template <class T>
struct Cube : functional::FloatingConstants<T> {
  using functional::FloatingConstants<T>::FloatingConstants;
  T forward(T x) const { return x * x * x; }
  T gradient(T dy, T x, T) const { return dy * T(3) * (x * x); }
};

/// x^alpha for any other exponent.
template <class T>
struct RealPower : functional::FloatingConstants<T> {
  using functional::FloatingConstants<T>::FloatingConstants;
  T forward(T x) const { return functional::math::pow(x, this->alpha); }
  T gradient(T dy, T x, T) const {
    return this->alpha == T(0) ? T(0)
                               : dy * this->alpha * functional::math::pow(x, this->alpha - 1);
  }
};

/// `loop.operator()<Functor>()` with the functor for an exponent, among them what PowScalar says of
/// squares.
template <class Loop>
auto with_power(double exponent, const Loop& loop) {
  if (exponent == 1) return loop.template operator()<Identity>();
  if (exponent == 2) return loop.template operator()<functional::Square>();
  if (exponent == 3) return loop.template operator()<Cube>();
  return loop.template operator()<RealPower>();
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
