#pragma once

#include <string_view>

#include "lockstep/autograd/ops/attention.hpp"
#include "lockstep/autograd/record.hpp"

/// @file
/// Attention by way of its scores, for what fused kernels do not compute.

namespace lockstep::autograd {

/// True if weights are dropped out or the mask learns.
inline bool needs_scores(const AttentionOptions& options) {
  return options.dropout != 0 || recording(options.mask);
}

/// The mask over all scores, undefined if there is none. A floating one is taken in the dtype that
/// mixed precision gave the operands. @param scores their shape, [N, H, T, S].
/// @throws InvalidArgument for a mask that does not fit.
Tensor expanded_mask(std::string_view op, const Tensor& q, const Shape& scores, const Tensor& mask);

/// `scaled_dot_product_attention` out of recorded ops, which store the scores.
/// @param q, k, v of shapes that fit, as mixed precision gives them.
/// @throws InvalidArgument for a dropout outside [0, 1] and a mask that does not fit.
Tensor attend_by_scores(std::string_view op, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionOptions& options);

}  // namespace lockstep::autograd
