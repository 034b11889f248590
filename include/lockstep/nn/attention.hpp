#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/attention.hpp"
#include "lockstep/nn/linear.hpp"

/// @file
/// Multi-head attention.

namespace lockstep::nn {

/// Options of MultiheadAttention.
struct MultiheadAttentionOptions {
  std::int64_t features = 0;  ///< of queries, keys, values and results
  std::int64_t heads = 1;     ///< must divide the features
  bool bias = true;
  double dropout = 0.0;  ///< of the weights, in training (`AttentionOptions::dropout`)
  TensorOptions tensor = {};
};

/// What the queries of a MultiheadAttention do not see.
struct AttentionMask {
  /// Broadcast to [N, heads, T, S]: bool, where true is masked out, as PyTorch's MultiheadAttention
  /// has it (`AttentionOptions::mask` of the function is the other way round); or added to the
  /// scores. May be undefined.
  Tensor attn_mask = {};
  /// Query i sees keys 0 to i.
  bool is_causal = false;
};

/// Attention of several heads between learned projections (Vaswani et al. 2017), over batches
/// first: [N, T, features]. Parameters are named and initialised as PyTorch's.
class MultiheadAttention : public Module {
 public:
  using Options = MultiheadAttentionOptions;
  /// @throws InvalidArgument for heads that do not divide the features and a dropout outside
  /// [0, 1].
  explicit MultiheadAttention(const MultiheadAttentionOptions& options);
  /// With bias.
  MultiheadAttention(std::int64_t features, std::int64_t heads)
      : MultiheadAttention(MultiheadAttentionOptions{.features = features, .heads = heads}) {}

  /// Self-attention: one product makes queries, keys and values.
  /// @param x [N, T, features]. @return x's shape.
  Tensor forward(const Tensor& x, const AttentionMask& mask = {}) const;
  /// addend + what self-attention gives, added in the last product (`add_linear`).
  /// @param addend of x's shape.
  Tensor forward(const Tensor& x, const AttentionMask& mask, const Tensor& addend) const;
  /// Attention of queries [N, T, features] to keys and values [N, S, features].
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionMask& mask = {}) const;
  std::string describe() const override;

 private:
  Tensor split_heads(const Tensor& x) const;
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask) const;
  AttentionOptions options_of(const AttentionMask& mask) const;
  std::int64_t heads_;
  double dropout_;

 public:
  Parameter in_proj_weight;  ///< [3 * features, features]: for queries, keys and values
  Parameter in_proj_bias;    ///< [3 * features], or undefined
  Child<Linear> out_proj;
};

}  // namespace lockstep::nn
