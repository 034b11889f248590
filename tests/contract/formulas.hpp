#pragma once

#include <algorithm>
#include <cmath>

#include "functional/op_list.hpp"

/// @file
/// The elementwise ops once more, as textbook formulas in double.

namespace lockstep::test {

inline double softplus_formula(double x) { return std::log1p(std::exp(x)); }

inline double formula(UnaryOp op, double x, OpConstants c) {
  switch (op) {
    case UnaryOp::neg: return -x;
    case UnaryOp::abs: return std::fabs(x);
    case UnaryOp::square: return x * x;
    case UnaryOp::sqrt: return std::sqrt(x);
    case UnaryOp::rsqrt: return 1 / std::sqrt(x);
    case UnaryOp::reciprocal: return 1 / x;
    case UnaryOp::exp: return std::exp(x);
    case UnaryOp::expm1: return std::expm1(x);
    case UnaryOp::log: return std::log(x);
    case UnaryOp::log1p: return std::log1p(x);
    case UnaryOp::sin: return std::sin(x);
    case UnaryOp::cos: return std::cos(x);
    case UnaryOp::erf: return std::erf(x);
    case UnaryOp::tanh: return std::tanh(x);
    case UnaryOp::sigmoid: return 1 / (1 + std::exp(-x));
    case UnaryOp::relu: return std::max(x, 0.0);
    case UnaryOp::silu: return x / (1 + std::exp(-x));
    case UnaryOp::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case UnaryOp::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case UnaryOp::softplus: return softplus_formula(x);
    case UnaryOp::mish: return x * std::tanh(softplus_formula(x));
    case UnaryOp::elu: return x > 0 ? x : c.alpha * (std::exp(x) - 1);
    case UnaryOp::hardswish: return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case UnaryOp::leaky_relu: return x > 0 ? x : c.alpha * x;
    case UnaryOp::clamp: return std::clamp(x, c.alpha, c.beta);
    case UnaryOp::pow_scalar: return std::pow(x, c.alpha);
    case UnaryOp::affine: return c.alpha * x + c.beta;
    case UnaryOp::div_scalar: return x / c.alpha;
  }
  return NAN;
}

inline double formula(BinaryOp op, double a, double b, OpConstants c) {
  switch (op) {
    case BinaryOp::add: return a + c.alpha * b;
    case BinaryOp::sub: return a - c.alpha * b;
    case BinaryOp::mul: return a * b;
    case BinaryOp::div: return a / b;
    case BinaryOp::maximum: return std::max(a, b);
    case BinaryOp::minimum: return std::min(a, b);
    case BinaryOp::pow: return std::pow(a, b);
    case BinaryOp::binary_cross_entropy: return -(b * std::log(a) + (1 - b) * std::log(1 - a));
  }
  return NAN;
}

/// Constants that exercise an op.
inline OpConstants constants_of(UnaryOp op) {
  switch (op) {
    case UnaryOp::clamp: return {-0.5, 0.5};
    case UnaryOp::pow_scalar: return {2.5, 0.0};
    case UnaryOp::affine: return {1.5, -0.25};
    case UnaryOp::div_scalar: return {1.75, 0.0};
    case UnaryOp::elu: return {0.75, 0.0};
    case UnaryOp::leaky_relu: return {0.125, 0.0};
    default: return {};
  }
}

}  // namespace lockstep::test
