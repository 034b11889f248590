#include "lockstep/nn/attention.hpp"

#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/tensor/factories.hpp"
#include "nn/describe.hpp"
#include "nn/residual.hpp"

namespace lockstep::nn {
namespace {

Tensor initial_projection(const MultiheadAttentionOptions& options) {
  LOCKSTEP_CHECK(options.heads > 0 && options.features > 0 && options.features % options.heads == 0,
                 InvalidArgument, "MultiheadAttention: ", options.heads, " heads do not divide ",
                 options.features, " features");
  return init::xavier_uniform_(empty({3 * options.features, options.features}, options.tensor));
}

}  // namespace

MultiheadAttention::MultiheadAttention(const MultiheadAttentionOptions& options)
    : heads_(options.heads),
      dropout_(checked_probability("MultiheadAttention", options.dropout)),
      in_proj_weight(this, "in_proj_weight", initial_projection(options)),
      in_proj_bias(this, "in_proj_bias",
                   options.bias ? zeros({3 * options.features}, options.tensor) : Tensor()),
      out_proj(this, "out_proj",
               LinearOptions{.in = options.features,
                             .out = options.features,
                             .bias = options.bias,
                             .tensor = options.tensor}) {
  if (options.bias) init::zeros_(out_proj->bias);
}

Tensor MultiheadAttention::split_heads(const Tensor& x) const {
  return x.reshape({x.size(0), x.size(1), heads_, x.size(2) / heads_}).transpose(1, 2);
}

/// The function's mask says what takes part.
AttentionOptions MultiheadAttention::options_of(const AttentionMask& mask) const {
  const bool masks_out = mask.attn_mask.defined() && mask.attn_mask.dtype() == DType::boolean;
  return {.mask = masks_out ? logical_not(mask.attn_mask) : mask.attn_mask,
          .is_causal = mask.is_causal,
          .dropout = is_training() ? dropout_ : 0.0};
}

Tensor MultiheadAttention::attend(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionMask& mask) const {
  const Tensor heads = scaled_dot_product_attention(split_heads(q), split_heads(k), split_heads(v),
                                                    options_of(mask));
  return out_proj(heads.transpose(1, 2).reshape(q.shape()));
}

Tensor MultiheadAttention::forward(const Tensor& x, const AttentionMask& mask) const {
  return forward(x, mask, Tensor());
}

Tensor MultiheadAttention::forward(const Tensor& x, const AttentionMask& mask,
                                   const Tensor& addend) const {
  const Tensor qkv = linear(x, in_proj_weight, in_proj_bias);
  return plus(addend, out_proj, self_attention(qkv, heads_, options_of(mask)));
}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionMask& mask) const {
  const std::int64_t features = in_proj_weight.size(1);
  const auto weights = split(in_proj_weight, {features, features, features});
  std::vector<Tensor> biases(3);
  if (in_proj_bias.defined()) biases = split(in_proj_bias, {features, features, features});
  return attend(linear(query, weights[0], biases[0]), linear(key, weights[1], biases[1]),
                linear(value, weights[2], biases[2]), mask);
}

std::string MultiheadAttention::describe() const {
  return text(in_proj_weight.size(1), ", heads=", heads_, in_proj_bias.defined() ? "" : ", no bias",
              dropout_ > 0 ? text(", dropout=", dropout_) : "");
}

}  // namespace lockstep::nn
