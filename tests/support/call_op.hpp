#pragma once

#include <gtest/gtest.h>

#include "autograd/ops/common.hpp"
#include "functional/op_list.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"

/// @file
/// Calls an op of ops.def by its enumerator.

namespace lockstep::testing {

inline Tensor call(UnaryOp op, const Tensor& x, const OpConstants& constants) {
  switch (op) {
    case UnaryOp::gelu_tanh: return gelu(x, GeluApproximation::tanh);
    case UnaryOp::gelu: return gelu(x);
    case UnaryOp::elu: return elu(x, constants.alpha);
    case UnaryOp::leaky_relu: return leaky_relu(x, constants.alpha);
    case UnaryOp::clamp: return clamp(x, constants.alpha, constants.beta);
    case UnaryOp::pow_scalar: return pow(x, constants.alpha);
    case UnaryOp::affine: return affine(x, constants.alpha, constants.beta);
    case UnaryOp::div_scalar: return div(x, constants.alpha);
#define LOCKSTEP_SIMPLE_OP(name) \
  case UnaryOp::name: return name(x);
      LOCKSTEP_SIMPLE_OP(neg)
      LOCKSTEP_SIMPLE_OP(abs)
      LOCKSTEP_SIMPLE_OP(square)
      LOCKSTEP_SIMPLE_OP(sqrt)
      LOCKSTEP_SIMPLE_OP(rsqrt)
      LOCKSTEP_SIMPLE_OP(reciprocal)
      LOCKSTEP_SIMPLE_OP(exp)
      LOCKSTEP_SIMPLE_OP(expm1)
      LOCKSTEP_SIMPLE_OP(log)
      LOCKSTEP_SIMPLE_OP(log1p)
      LOCKSTEP_SIMPLE_OP(sin)
      LOCKSTEP_SIMPLE_OP(cos)
      LOCKSTEP_SIMPLE_OP(erf)
      LOCKSTEP_SIMPLE_OP(tanh)
      LOCKSTEP_SIMPLE_OP(sigmoid)
      LOCKSTEP_SIMPLE_OP(relu)
      LOCKSTEP_SIMPLE_OP(silu)
      LOCKSTEP_SIMPLE_OP(softplus)
      LOCKSTEP_SIMPLE_OP(mish)
      LOCKSTEP_SIMPLE_OP(hardswish)
#undef LOCKSTEP_SIMPLE_OP
  }
  ADD_FAILURE() << traits(op).name << " is in ops.def but not called here";
  return x;
}

inline Tensor call(BinaryOp op, const Tensor& a, const Tensor& b, const OpConstants& constants) {
  switch (op) {
    case BinaryOp::add: return add(a, b, constants.alpha);
    case BinaryOp::sub: return sub(a, b, constants.alpha);
    case BinaryOp::mul: return mul(a, b);
    case BinaryOp::div: return div(a, b);
    case BinaryOp::maximum: return maximum(a, b);
    case BinaryOp::minimum: return minimum(a, b);
    case BinaryOp::pow: return pow(a, b);
    case BinaryOp::binary_cross_entropy: return autograd::binary(op, a, b);
  }
  ADD_FAILURE() << traits(op).name << " is in ops.def but not called here";
  return a;
}

}  // namespace lockstep::testing
