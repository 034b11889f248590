#include "lockstep/models/llama.hpp"

#include <cmath>
#include <numbers>
#include <sstream>
#include <vector>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/attention.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/tensor/factories.hpp"
#include "models/check_sizes.hpp"
#include "nn/residual.hpp"

namespace lockstep::models {
namespace {

const LlamaOptions& checked(const LlamaOptions& options) {
  check_sizes("Llama", {{"layers", options.layers},
                        {"heads", options.heads},
                        {"kv_heads", options.kv_heads},
                        {"head_dim", options.head_dim},
                        {"channels", options.channels},
                        {"intermediate", options.intermediate},
                        {"context", options.context},
                        {"vocabulary", options.vocabulary}});
  LOCKSTEP_CHECK(options.heads % options.kv_heads == 0, InvalidArgument,
                 "Llama: ", options.kv_heads, " heads of keys and values do not divide ",
                 options.heads, " heads");
  LOCKSTEP_CHECK(options.head_dim % 2 == 0, InvalidArgument, "Llama: heads of ", options.head_dim,
                 " features; rotary embeddings turn pairs, so that it must be even");
  check_epsilon("Llama", options.norm_eps);
  const auto check_above = [](const char* name, double value, double least) {
    LOCKSTEP_CHECK(std::isfinite(value) && value > least, InvalidArgument, "Llama: ", name, " = ",
                   value, "; it must be a number above ", least);
  };
  check_above("rope_theta", options.rope_theta, 0);
  if (const auto& scaling = options.rope_scaling) {
    check_above("rope_scaling.factor", scaling->factor, 0);
    check_above("rope_scaling.low_freq_factor", scaling->low_freq_factor, 0);
    check_above("rope_scaling.high_freq_factor", scaling->high_freq_factor,
                scaling->low_freq_factor);
    check_sizes("Llama", {{"rope_scaling.original_max_position_embeddings",
                           scaling->original_max_position_embeddings}});
  }
  return options;
}

nn::LinearOptions projection(std::int64_t in, std::int64_t out, const LlamaOptions& options) {
  return {.in = in, .out = out, .bias = false, .tensor = options.tensor};
}

nn::EmbeddingOptions embedding_options(const LlamaOptions& options) {
  return {.count = options.vocabulary,
          .features = options.channels,
          .padding_index = options.padding_index,
          .tensor = options.tensor};
}

nn::RMSNormOptions norm_options(const LlamaOptions& options) {
  return {.shape = {options.channels},
          .eps = options.norm_eps,
          .result = NormResult::for_products,
          .tensor = options.tensor};
}

/// A frequency after the scaling of Llama 3.1: slow ones divided, fast ones kept, others blended.
double scaled(double frequency, const RopeScaling& scaling) {
  const auto first_context = static_cast<double>(scaling.original_max_position_embeddings);
  const double turns = first_context * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp(
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
      1.0);
  return frequency * (kept + (1 - kept) / scaling.factor);
}

Tensor frequencies(const LlamaOptions& options) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < options.head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(options.head_dim);
    const double frequency = std::pow(options.rope_theta, -exponent);
    values.push_back(options.rope_scaling ? scaled(frequency, *options.rope_scaling) : frequency);
  }
  const bool is_f64 = options.tensor.dtype == DType::f64;
  return tensor(values).to(is_f64 ? DType::f64 : DType::f32).to(options.tensor.device);
}

/// The given positions, or 0, 1, 2, ..., as [batch or 1, time].
Tensor positions_of(const Tensor& tokens, const Tensor& given) {
  const std::int64_t time = tokens.size(1);
  if (!given.defined()) return arange(time, {DType::i64, tokens.device()}).unsqueeze(0);
  LOCKSTEP_CHECK(given.shape() == tokens.shape() || given.shape() == Shape({1, time}),
                 InvalidArgument, "Llama: positions of shape ", given.shape(),
                 " for tokens of shape ", tokens.shape(), "; give [batch, time] or [1, time]");
  return given;
}

}  // namespace

LlamaRotaryEmbedding::LlamaRotaryEmbedding(const LlamaOptions& options)
    : inv_freq(this, "inv_freq", frequencies(options), false) {}

RotaryTables LlamaRotaryEmbedding::forward(const Tensor& positions) const {
  const Tensor places = positions.to(inv_freq.dtype());
  const Tensor angles = places.unsqueeze(1).unsqueeze(-1) * inv_freq;
  return {cos(angles), sin(angles)};
}

LlamaAttention::LlamaAttention(const LlamaOptions& options)
    : head_dim(options.head_dim),
      q_proj(this, "q_proj", projection(options.channels, options.heads * head_dim, options)),
      k_proj(this, "k_proj", projection(options.channels, options.kv_heads * head_dim, options)),
      v_proj(this, "v_proj", projection(options.channels, options.kv_heads * head_dim, options)),
      o_proj(this, "o_proj", projection(options.heads * head_dim, options.channels, options)) {}

Tensor LlamaAttention::forward(const Tensor& x, const RotaryTables& tables, const Tensor& mask,
                               const Tensor& addend) const {
  const std::int64_t batch = x.size(0), time = x.size(1);
  const auto heads = [&](const Tensor& y) {
    return y.reshape({batch, time, y.size(2) / head_dim, head_dim}).transpose(1, 2);
  };
  const auto turned = [&](const Tensor& y) {
    return rotary_embedding(heads(y), tables.cos, tables.sin);
  };
  const Tensor q = turned(q_proj(x)), k = turned(k_proj(x)), v = heads(v_proj(x));
  const Tensor y = scaled_dot_product_attention(q, k, v, {.mask = mask, .is_causal = true});
  return nn::plus(addend, o_proj, y.transpose(1, 2).reshape({batch, time, y.size(1) * head_dim}));
}

LlamaMlp::LlamaMlp(const LlamaOptions& options)
    : gate_proj(this, "gate_proj", projection(options.channels, options.intermediate, options)),
      up_proj(this, "up_proj", projection(options.channels, options.intermediate, options)),
      down_proj(this, "down_proj", projection(options.intermediate, options.channels, options)) {}

Tensor LlamaMlp::forward(const Tensor& x, const Tensor& addend) const {
  const Tensor gate = gate_proj(x), up = up_proj(x);
  return nn::plus(addend, down_proj, swiglu(gate, up));
}

LlamaDecoderLayer::LlamaDecoderLayer(const LlamaOptions& options)
    : self_attn(this, "self_attn", options),
      mlp(this, "mlp", options),
      input_layernorm(this, "input_layernorm", norm_options(options)),
      post_attention_layernorm(this, "post_attention_layernorm", norm_options(options)) {}

Tensor LlamaDecoderLayer::forward(const Tensor& x, const RotaryTables& tables,
                                  const Tensor& mask) const {
  // Residuals are parts of the products, unless hooks want to see what a branch gives.
  if (!self_attn->has_call_hooks() && !mlp->has_call_hooks()) {
    const Tensor attended = self_attn(input_layernorm(x), tables, mask, x);
    return mlp(post_attention_layernorm(attended), attended);
  }
  const Tensor attended = x + self_attn(input_layernorm(x), tables, mask);
  return attended + mlp(post_attention_layernorm(attended));
}

LlamaModel::LlamaModel(const LlamaOptions& options)
    : context(options.context),
      embed_tokens(this, "embed_tokens", embedding_options(options)),
      layers(this, "layers", options.layers, options),
      norm(this, "norm", norm_options(options)),
      rotary_emb(this, "rotary_emb", options) {}

Tensor LlamaModel::forward(const Tensor& tokens, const LlamaForwardOptions& options) const {
  LOCKSTEP_CHECK(tokens.dim() == 2 && tokens.size(1) <= context, InvalidArgument,
                 "Llama: tokens of shape ", tokens.shape(),
                 "; expected [batch, time] with time at most the context of ", context);
  const RotaryTables tables = rotary_emb->forward(positions_of(tokens, options.positions));
  Tensor x = embed_tokens(tokens);
  for (const auto& layer : layers) x = layer(x, tables, options.mask);
  return norm(x);
}

Llama::Llama(const LlamaOptions& options)
    : options_(checked(options)), model(this, "model", options) {
  if (!options.tied_embeddings)
    lm_head.emplace(this, "lm_head", projection(options.channels, options.vocabulary, options));
  constexpr double deviation = 0.02;
  for (auto& [name, parameter] : named_parameters())
    if (parameter.dim() == 2) nn::init::normal_(parameter, 0.0, deviation);
  if (options.padding_index >= 0)
    no_grad([&] { model->embed_tokens->weight.select(0, options.padding_index).zero_(); });
}

const Tensor& Llama::output_weight() const {
  return lm_head ? (*lm_head)->weight : model->embed_tokens->weight;
}

Tensor Llama::forward(const Tensor& tokens, const LlamaForwardOptions& options) const {
  const Tensor x = model(tokens, options);
  return lm_head ? (*lm_head)(x) : linear(x, output_weight());
}

Tensor Llama::forward(const Tensor& tokens, const Tensor& targets,
                      const LlamaForwardOptions& options,
                      const LinearCrossEntropyOptions& loss) const {
  const Tensor x = model(tokens, options);
  // The logits are parts of the loss, unless hooks want to see them.
  if (lm_head && (*lm_head)->has_call_hooks()) {
    Tensor logits = (*lm_head)(x);
    if (loss.bias.defined()) logits = logits + loss.bias;
    return cross_entropy(logits.transpose(1, 2), targets,
                         {.ignore_index = loss.ignore_index,
                          .label_smoothing = loss.label_smoothing,
                          .reduction = loss.reduction});
  }
  return linear_cross_entropy(x, output_weight(), targets, loss);
}

std::string Llama::describe() const {
  lockstep::detail::TextStream out;
  out << "layers=" << options_.layers << ", heads=" << options_.heads
      << ", kv_heads=" << options_.kv_heads << ", channels=" << options_.channels
      << ", intermediate=" << options_.intermediate << ", context=" << options_.context
      << ", vocabulary=" << options_.vocabulary;
  return out.str();
}

}  // namespace lockstep::models
