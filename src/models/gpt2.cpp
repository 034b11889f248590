#include "lockstep/models/gpt2.hpp"

#include <cmath>
#include <sstream>

#include "lockstep/autograd/ops/attention.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/tensor/factories.hpp"
#include "models/check_sizes.hpp"
#include "nn/describe.hpp"
#include "nn/residual.hpp"

namespace lockstep::models {
namespace {

nn::LayerNormOptions norm_options(const Gpt2Options& options) {
  return {.shape = {options.channels},
          .eps = options.norm_eps,
          .result = NormResult::for_products,
          .tensor = options.tensor};
}

const Gpt2Options& checked(const Gpt2Options& options) {
  check_sizes("GPT-2", {{"layers", options.layers},
                        {"heads", options.heads},
                        {"channels", options.channels},
                        {"context", options.context},
                        {"vocabulary", options.vocabulary}});
  LOCKSTEP_CHECK(options.channels % options.heads == 0, InvalidArgument, "GPT-2: ", options.heads,
                 " heads do not divide ", options.channels, " channels");
  check_epsilon("GPT-2", options.norm_eps);
  return options;
}

constexpr double deviation = 0.02;

/// The embeddings of the positions, which broadcast to those of the tokens. Without a list of
/// positions they are the first rows of the table, unless hooks want to see the layer run.
Tensor places_of(const Tensor& tokens, Tensor positions, const nn::Child<nn::Embedding>& wpe) {
  const std::int64_t time = tokens.size(1);
  if (!positions.defined() && !wpe->has_call_hooks())
    return time == wpe->weight.size(0) ? wpe->weight : wpe->weight.slice(0, 0, time);
  if (!positions.defined()) positions = arange(time, {DType::i64, tokens.device()});
  const Shape& shape = positions.shape();
  LOCKSTEP_CHECK(shape == tokens.shape() || shape == Shape({1, time}) || shape == Shape({time}),
                 InvalidArgument, "GPT-2: positions of shape ", shape, " for tokens of shape ",
                 tokens.shape(), "; give [batch, time] or [1, time]");
  return wpe(positions);
}

}  // namespace

Gpt2Attention::Gpt2Attention(const Gpt2Options& options)
    : heads(options.heads),
      dropout(nn::checked_probability("GPT-2's attention", options.attention_dropout)),
      c_attn(this, "c_attn", options.channels, 3 * options.channels, options.tensor),
      c_proj(this, "c_proj", options.channels, options.channels, options.tensor) {}

Tensor Gpt2Attention::forward(const Tensor& x, const Tensor& mask, const Tensor& addend) const {
  const Tensor y =
      self_attention(c_attn(x), heads,
                     {.mask = mask, .is_causal = true, .dropout = is_training() ? dropout : 0.0});
  return nn::plus(addend, c_proj, y);
}

Gpt2Mlp::Gpt2Mlp(const Gpt2Options& options)
    : c_fc(this, "c_fc", options.channels, 4 * options.channels, options.tensor),
      c_proj(this, "c_proj", 4 * options.channels, options.channels, options.tensor) {}

Tensor Gpt2Mlp::forward(const Tensor& x, const Tensor& addend) const {
  if (c_fc->has_call_hooks() || c_proj->has_call_hooks())  // who want to see what lies between
    return nn::plus(addend, c_proj, gelu(c_fc(x), GeluApproximation::tanh));
  return lockstep::mlp(x, {c_fc->weight, c_fc->bias, c_proj->weight, c_proj->bias},
                       {.addend = addend});
}

Gpt2Block::Gpt2Block(const Gpt2Options& options)
    : ln_1(this, "ln_1", norm_options(options)),
      attn(this, "attn", options),
      ln_2(this, "ln_2", norm_options(options)),
      mlp(this, "mlp", options),
      drop(this, "drop", options.dropout) {}

Tensor Gpt2Block::forward(const Tensor& x, const Tensor& mask) const {
  // Inside the products, unless hooks want to see what a branch gives.
  if (!drop->is_active() && !attn->has_call_hooks() && !mlp->has_call_hooks()) {
    const Tensor attended = attn(ln_1(x), mask, x);
    return mlp(ln_2(attended), attended);
  }
  const Tensor attended = x + drop(attn(ln_1(x), mask));
  return attended + drop(mlp(ln_2(attended)));
}

Gpt2Transformer::Gpt2Transformer(const Gpt2Options& options)
    : wte(this, "wte", options.vocabulary, options.channels, options.tensor),
      wpe(this, "wpe", options.context, options.channels, options.tensor),
      drop(this, "drop", options.dropout),
      h(this, "h", options.layers, options),
      ln_f(this, "ln_f", norm_options(options)) {}

Tensor Gpt2Transformer::forward(const Tensor& tokens, const Gpt2ForwardOptions& options) const {
  LOCKSTEP_CHECK(tokens.dim() == 2 && tokens.size(1) <= wpe->weight.size(0), InvalidArgument,
                 "GPT-2: tokens of shape ", tokens.shape(),
                 "; expected [batch, time] with time at "
                 "most the context of ",
                 wpe->weight.size(0));
  const Tensor places = places_of(tokens, options.positions, wpe);
  // In one pass, unless hooks want to see what the layer gives.
  Tensor x = drop(wte->has_call_hooks() ? wte(tokens) + places : wte(tokens, places));
  for (const auto& block : h) x = block(x, options.mask);
  return ln_f(x);
}

Gpt2::Gpt2(const Gpt2Options& options)
    : options_(checked(options)), transformer(this, "transformer", options) {
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(options.layers));
  for (auto& [name, parameter] : named_parameters()) {
    if (name.ends_with(".bias"))
      nn::init::zeros_(parameter);
    else if (parameter.dim() == 2)
      nn::init::normal_(parameter, 0.0, name.ends_with("c_proj.weight") ? residual : deviation);
  }
}

Tensor Gpt2::forward(const Tensor& tokens, const Gpt2ForwardOptions& options) const {
  return linear(transformer(tokens, options), transformer->wte->weight);
}

Tensor Gpt2::forward(const Tensor& tokens, const Tensor& targets, const Gpt2ForwardOptions& options,
                     const LinearCrossEntropyOptions& loss) const {
  return linear_cross_entropy(transformer(tokens, options), transformer->wte->weight, targets,
                              loss);
}

std::string Gpt2::describe() const {
  lockstep::detail::TextStream out;
  out << "layers=" << options_.layers << ", heads=" << options_.heads
      << ", channels=" << options_.channels << ", context=" << options_.context
      << ", vocabulary=" << options_.vocabulary;
  return out.str();
}

}  // namespace lockstep::models
