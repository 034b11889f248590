#pragma once

#include "arguments/gemm.hpp"
#include "arguments/reduction.hpp"

namespace lockstep::kernels {

/// The reduction that computes what Epilogue::bias_gradient writes to `bias`.
/// @throws InvalidArgument for a batch of products.
inline ReduceArguments bias_gradient(const GemmArguments& call) {
  const ArrayView &a = call.a, &bias = call.bias;
  LOCKSTEP_CHECK(a.shape[0] == 1, InvalidArgument, "gemm: the gradient of a bias from a batch of ",
                 a.shape[0], " products; it comes from one");
  ReduceArguments sums{.op = ReduceOp::sum, .out = bias, .in = a};
  sums.in.shape = {a.shape[2], a.shape[1]};
  sums.in.strides = {a.strides[2], a.strides[1]};
  sums.out.shape = {1, bias.shape[0]};
  sums.out.strides = {0, bias.strides[0]};
  sums.accumulate = call.accumulate_bias;
  return sums;
}

/// The call without its epilogue.
inline GemmArguments without_epilogue(GemmArguments call) {
  call.epilogue = Epilogue::none;
  call.bias = call.aux = {};
  return call;
}

}  // namespace lockstep::kernels
