#pragma once

#include "autograd/ops/common.hpp"
#include "functional/op_list.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"

/// @file
/// Calls the public function of an op of ops.def by its enumerator: the function of that name, with
/// as many constants as it takes.

namespace lockstep::testing {

// Ops whose functions go by another name.
namespace renamed {
inline Tensor gelu_tanh(const Tensor& x) { return gelu(x, GeluApproximation::tanh); }
inline Tensor pow_scalar(const Tensor& x, double alpha) { return pow(x, alpha); }
inline Tensor div_scalar(const Tensor& x, double alpha) { return div(x, alpha); }
}  // namespace renamed

inline Tensor call(UnaryOp op, const Tensor& input, const OpConstants& constants) {
  using namespace renamed;
  const auto run = [&constants]<class T>(const T& x, const auto& function) {
    if constexpr (requires { function(x, constants.alpha, constants.beta); })
      return function(x, constants.alpha, constants.beta);
    else if constexpr (requires { function(x, constants.alpha); })
      return function(x, constants.alpha);
    else
      return function(x);
  };
#define LOCKSTEP_UNARY_OP(name, ...)                                               \
  if (op == UnaryOp::name)                                                         \
    return run(input, [](const auto&... operands) -> decltype(name(operands...)) { \
      return name(operands...);                                                    \
    });
#include "functional/ops.def"
  return {};
}

inline Tensor call(BinaryOp op, const Tensor& first, const Tensor& second,
                   const OpConstants& constants) {
  // The functions of those names reduce, or take one slope a channel.
  switch (op) {
    case BinaryOp::binary_cross_entropy:
    case BinaryOp::binary_cross_entropy_with_logits:
    case BinaryOp::huber_loss:
    case BinaryOp::mse_loss:
    case BinaryOp::prelu: return autograd::binary(op, first, second, constants);
    default: break;
  }
  const auto run = [&constants]<class T>(const T& a, const T& b, const auto& function) {
    if constexpr (requires { function(a, b, constants.alpha); })
      return function(a, b, constants.alpha);
    else
      return function(a, b);
  };
#define LOCKSTEP_BINARY_OP(name, ...)                                                      \
  if (op == BinaryOp::name)                                                                \
    return run(first, second, [](const auto&... operands) -> decltype(name(operands...)) { \
      return name(operands...);                                                            \
    });
#include "functional/ops.def"
  return {};
}

inline Tensor call(CompareOp op, const Tensor& a, const Tensor& b) {
#define LOCKSTEP_COMPARE_OP(name, ...) \
  if (op == CompareOp::name) return name(a, b);
#include "functional/ops.def"
  return {};
}

}  // namespace lockstep::testing
