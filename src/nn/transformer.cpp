#include "lockstep/nn/transformer.hpp"

#include "lockstep/autograd/ops/pointwise.hpp"
#include "nn/describe.hpp"
#include "nn/residual.hpp"

namespace lockstep::nn {
namespace {

MultiheadAttentionOptions attention_of(const TransformerLayerOptions& options) {
  return {.features = options.features,
          .heads = options.heads,
          .bias = options.bias,
          .dropout = options.attention_dropout.value_or(options.dropout),
          .tensor = options.tensor};
}

LinearOptions linear_of(const TransformerLayerOptions& options, std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .bias = options.bias, .tensor = options.tensor};
}

/// Of a branch, or at the end. In front of a branch products alone read what it gives.
LayerNormOptions norm_of(const TransformerLayerOptions& options, bool of_branch) {
  return {.shape = {options.features},
          .eps = options.layer_norm_eps,
          .bias = options.bias,
          .result =
              of_branch && options.norm_first ? NormResult::for_products : NormResult::as_computed,
          .tensor = options.tensor};
}

const TransformerOptions& checked(const char* name, const TransformerOptions& options) {
  LOCKSTEP_CHECK(options.num_layers > 0, InvalidArgument, name, ": ", options.num_layers,
                 " layers; it needs at least 1");
  return options;
}

std::string in_words(TransformerActivation activation, bool norm_first) {
  return text(activation == TransformerActivation::relu ? "relu" : "gelu",
              norm_first ? ", norm first" : "");
}

/// A branch with its norm, in front of it or behind the sum. @param branch of (addend, in): the
/// addend + what it makes of in.
template <class Branch>
Tensor with_residual(const Tensor& x, const Child<LayerNorm>& norm, bool norm_first,
                     const Branch& branch) {
  return norm_first ? branch(x, norm(x)) : norm(branch(x, x));
}

/// addend + self-attention, in one product where nothing is to happen between.
Tensor add_self_attention(const Tensor& addend, const Tensor& x,
                          const Child<MultiheadAttention>& attention, const AttentionMask& mask,
                          const Child<Dropout>& dropout) {
  if (dropout->is_active() || attention->has_call_hooks())
    return addend + dropout(attention(x, mask));
  return attention(x, mask, addend);
}

/// addend + the feed-forward part of a layer, likewise.
Tensor add_feed_forward(const Tensor& addend, const Tensor& x, const auto& layer,
                        TransformerActivation activation, const Child<Dropout>& dropout) {
  const Tensor hidden = layer.linear1(x);
  const Tensor inner =
      layer.dropout(activation == TransformerActivation::relu ? relu(hidden) : gelu(hidden));
  return dropout->is_active() ? addend + dropout(layer.linear2(inner))
                              : plus(addend, layer.linear2, inner);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerLayerOptions& options)
    : activation_(options.activation),
      norm_first_(options.norm_first),
      self_attn(this, "self_attn", attention_of(options)),
      linear1(this, "linear1", linear_of(options, options.features, options.dim_feedforward)),
      dropout(this, "dropout", options.dropout),
      linear2(this, "linear2", linear_of(options, options.dim_feedforward, options.features)),
      norm1(this, "norm1", norm_of(options, true)),
      norm2(this, "norm2", norm_of(options, true)),
      dropout1(this, "dropout1", options.dropout),
      dropout2(this, "dropout2", options.dropout) {}

Tensor TransformerEncoderLayer::forward(const Tensor& x, const AttentionMask& mask) const {
  const Tensor attended =
      with_residual(x, norm1, norm_first_, [&](const Tensor& addend, const Tensor& in) {
        return add_self_attention(addend, in, self_attn, mask, dropout1);
      });
  return with_residual(attended, norm2, norm_first_, [&](const Tensor& addend, const Tensor& in) {
    return add_feed_forward(addend, in, *this, activation_, dropout2);
  });
}

std::string TransformerEncoderLayer::describe() const { return in_words(activation_, norm_first_); }

TransformerEncoder::TransformerEncoder(const TransformerOptions& options)
    : layers(this, "layers", checked("TransformerEncoder", options).num_layers, options.layer) {
  if (options.norm) norm.emplace(this, "norm", norm_of(options.layer, false));
}

Tensor TransformerEncoder::forward(const Tensor& x, const AttentionMask& mask) const {
  Tensor y = x;
  for (const auto& layer : layers) y = layer(y, mask);
  return norm ? (*norm)(y) : y;
}

TransformerDecoderLayer::TransformerDecoderLayer(const TransformerLayerOptions& options)
    : activation_(options.activation),
      norm_first_(options.norm_first),
      self_attn(this, "self_attn", attention_of(options)),
      multihead_attn(this, "multihead_attn", attention_of(options)),
      linear1(this, "linear1", linear_of(options, options.features, options.dim_feedforward)),
      dropout(this, "dropout", options.dropout),
      linear2(this, "linear2", linear_of(options, options.dim_feedforward, options.features)),
      norm1(this, "norm1", norm_of(options, true)),
      norm2(this, "norm2", norm_of(options, true)),
      norm3(this, "norm3", norm_of(options, true)),
      dropout1(this, "dropout1", options.dropout),
      dropout2(this, "dropout2", options.dropout),
      dropout3(this, "dropout3", options.dropout) {}

Tensor TransformerDecoderLayer::forward(const Tensor& x, const Tensor& memory,
                                        const AttentionMask& mask,
                                        const AttentionMask& memory_mask) const {
  Tensor y = with_residual(x, norm1, norm_first_, [&](const Tensor& addend, const Tensor& in) {
    return add_self_attention(addend, in, self_attn, mask, dropout1);
  });
  y = with_residual(y, norm2, norm_first_, [&](const Tensor& addend, const Tensor& in) {
    return addend + dropout2(multihead_attn(in, memory, memory, memory_mask));
  });
  return with_residual(y, norm3, norm_first_, [&](const Tensor& addend, const Tensor& in) {
    return add_feed_forward(addend, in, *this, activation_, dropout3);
  });
}

std::string TransformerDecoderLayer::describe() const { return in_words(activation_, norm_first_); }

TransformerDecoder::TransformerDecoder(const TransformerOptions& options)
    : layers(this, "layers", checked("TransformerDecoder", options).num_layers, options.layer) {
  if (options.norm) norm.emplace(this, "norm", norm_of(options.layer, false));
}

Tensor TransformerDecoder::forward(const Tensor& x, const Tensor& memory, const AttentionMask& mask,
                                   const AttentionMask& memory_mask) const {
  Tensor y = x;
  for (const auto& layer : layers) y = layer(y, memory, mask, memory_mask);
  return norm ? (*norm)(y) : y;
}

}  // namespace lockstep::nn
