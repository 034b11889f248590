#pragma once

#include <algorithm>
#include <cmath>

#include "functional/binary.hpp"
#include "functional/op_list.hpp"
#include "functional/unary.hpp"

/// @file
/// The elementwise ops once more, as the textbook formulas of ops.def, in double.

// Not within lockstep, whose exp and max the formulas do not mean.
namespace textbook {

using namespace std;

inline double formula(lockstep::UnaryOp op, double x, [[maybe_unused]] double alpha,
                      [[maybe_unused]] double beta) {
#define LOCKSTEP_UNARY_OP(name, Functor, saves, autocast, low, high, ...) \
  if (op == lockstep::UnaryOp::name) return __VA_ARGS__;
#include "functional/ops.def"
  return NAN;
}

inline double formula(lockstep::BinaryOp op, double a, double b, [[maybe_unused]] double alpha) {
#define LOCKSTEP_BINARY_OP(name, Functor, saves, autocast, low, high, ...) \
  if (op == lockstep::BinaryOp::name) return __VA_ARGS__;
#include "functional/ops.def"
  return NAN;
}

inline bool formula(lockstep::CompareOp op, double a, double b) {
#define LOCKSTEP_COMPARE_OP(name, autocast, ...) \
  if (op == lockstep::CompareOp::name) return __VA_ARGS__;
#include "functional/ops.def"
  return false;
}

}  // namespace textbook

namespace lockstep::test {

inline double formula(UnaryOp op, double x, OpConstants c) {
  return textbook::formula(op, x, c.alpha, c.beta);
}
inline double formula(BinaryOp op, double a, double b, OpConstants c) {
  return textbook::formula(op, a, b, c.alpha);
}
inline bool formula(CompareOp op, double a, double b) { return textbook::formula(op, a, b); }

/// The slope of a formula at x, by central differences: half of a step at a kink.
template <class Function>
double slope_of(const Function& function, double x) {
  const double h = 1e-6;
  return (function(x + h) - function(x - h)) / (2 * h);
}

/// Constants that every op can be called with, exact in all dtypes: the bounds of clamp, the
/// exponent of pow, ...
inline constexpr OpConstants test_constants{.alpha = 0.375, .beta = 0.875};

/// True if an elementwise op is also offered for i64, i32 and u8.
inline bool takes_integers(UnaryOp op) {
#define LOCKSTEP_UNARY_OP(name, Functor, ...) \
  if (op == UnaryOp::name) return functional::Functor<std::int64_t>::integers;
#include "functional/ops.def"
  return false;
}
inline bool takes_integers(BinaryOp op) {
#define LOCKSTEP_BINARY_OP(name, Functor, ...) \
  if (op == BinaryOp::name) return functional::Functor<std::int64_t>::integers;
#include "functional/ops.def"
  return false;
}

}  // namespace lockstep::test
