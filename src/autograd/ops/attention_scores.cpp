#include "autograd/ops/attention_scores.hpp"

#include <cmath>
#include <limits>

#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::autograd {
namespace {

constexpr double unseen = -std::numeric_limits<double>::infinity();

bool expands_to(const Shape& from, const Shape& to) {
  const int lead = to.size() - from.size();
  for (int i = 0; i < from.size() && lead >= 0; ++i)
    if (from[i] != 1 && from[i] != to[lead + i]) return false;
  return lead >= 0;
}

/// Query heads [N, H, T, X] that share one of G key heads as further rows of it, so that one
/// product takes them.
Tensor by_key_head(const Tensor& x, std::int64_t key_heads) {
  return x.reshape({x.size(0), key_heads, x.size(1) / key_heads * x.size(2), x.size(3)});
}

/// scale * q k^T + mask.
/// @param mask that of the options, expanded; true hides where it is bool
Tensor scores_of(const Tensor& q, const Tensor& k, const AttentionOptions& options,
                 const Tensor& mask) {
  const std::int64_t queries = q.size(2), keys = k.size(2);
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  Tensor scores = matmul(by_key_head(q * scale, k.size(1)), k.transpose(2, 3))
                      .reshape({q.size(0), q.size(1), queries, keys});
  if (mask.defined())
    scores = mask.dtype() == DType::boolean ? masked_fill(scores, mask, unseen) : scores + mask;
  if (!options.is_causal) return scores;
  const Tensor future = triu(ones({queries, keys}, {DType::boolean, q.device()}), 1);
  return masked_fill(scores, future, unseen);
}

/// Softmax along keys; 0 where a query sees none.
Tensor weights_of(const Tensor& scores, bool has_mask) {
  if (!has_mask || scores.size(3) == 0) return softmax(scores, -1);
  const Tensor is_blind = no_grad([&] { return amax(scores, -1, true) == unseen; });
  return masked_fill(softmax(masked_fill(scores, is_blind, 0.0), -1), is_blind, 0.0);
}

}  // namespace

Tensor expanded_mask(std::string_view op, const Tensor& q, const Shape& scores,
                     const Tensor& mask) {
  if (!mask.defined()) return {};
  LOCKSTEP_CHECK(expands_to(mask.shape(), scores), InvalidArgument, op, ": the mask has shape ",
                 mask.shape(), ", which does not expand to that of the scores, ", scores);
  const bool follows = thread_modes.autocast && is_floating(mask.dtype());
  Tensor expanded = (follows ? mask.to(q.dtype()) : mask).expand(scores);
  check_same_device(op, q, expanded);
  LOCKSTEP_CHECK(expanded.dtype() == DType::boolean || expanded.dtype() == q.dtype(),
                 InvalidArgument, op, ": the mask has dtype ", expanded.dtype(),
                 ", it must be bool or ", q.dtype());
  return expanded;
}

Tensor attend_by_scores(std::string_view op, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionOptions& options) {
  const Shape shape{q.size(0), q.size(1), q.size(2), k.size(2)};
  Tensor mask = expanded_mask(op, q, shape, options.mask);
  const AutocastModeGuard no_casts;  // softmax would store the scores in f32
  if (mask.defined() && mask.dtype() == DType::boolean)
    mask = logical_not(options.mask).expand(shape);
  const Tensor scores = scores_of(q, k, options, mask);
  const Tensor weights = dropout(weights_of(scores, options.mask.defined()), options.dropout);
  return matmul(by_key_head(weights, k.size(1)), v)
      .reshape({q.size(0), q.size(1), q.size(2), v.size(3)});
}

}  // namespace lockstep::autograd
