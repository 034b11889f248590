#include "lockstep/models/vit.hpp"

#include <array>
#include <cmath>
#include <sstream>

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

using Options = VisionTransformerOptions;

const Options& checked(const Options& options) {
  check_sizes("VisionTransformer", {{"image_size", options.image_size},
                                    {"patch_size", options.patch_size},
                                    {"in_channels", options.in_channels},
                                    {"layers", options.layers},
                                    {"heads", options.heads},
                                    {"hidden_dim", options.hidden_dim},
                                    {"mlp_dim", options.mlp_dim},
                                    {"num_classes", options.num_classes}});
  LOCKSTEP_CHECK(options.image_size % options.patch_size == 0, InvalidArgument,
                 "VisionTransformer: patches of ", options.patch_size,
                 " pixels do not divide images of ", options.image_size);
  LOCKSTEP_CHECK(options.hidden_dim % options.heads == 0, InvalidArgument,
                 "VisionTransformer: ", options.heads, " heads do not divide ", options.hidden_dim,
                 " features");
  return options;
}

/// A norm whose result products alone read, or anything does.
nn::LayerNormOptions norm_options(const Options& options, NormResult result) {
  return {.shape = {options.hidden_dim},
          .eps = options.norm_eps,
          .result = result,
          .tensor = options.tensor};
}

nn::Conv2dOptions patch_options(const Options& options) {
  return {.in = options.in_channels,
          .out = options.hidden_dim,
          .kernel = options.patch_size,
          .stride = options.patch_size,
          .tensor = options.tensor};
}

Tensor initial_positions(const Options& options) {
  const std::int64_t side = options.image_size / options.patch_size;
  constexpr double deviation = 0.02;
  return nn::init::normal_(empty({1, side * side + 1, options.hidden_dim}, options.tensor), 0.0,
                           deviation);
}

struct NetworkSize {
  std::int64_t patch_size, layers, heads, hidden_dim, mlp_dim;
};

nn::ModulePtr<VisionTransformer> network(const NetworkSize& size, Options options) {
  options.patch_size = size.patch_size;
  options.layers = size.layers;
  options.heads = size.heads;
  options.hidden_dim = size.hidden_dim;
  options.mlp_dim = size.mlp_dim;
  return nn::make<VisionTransformer>(options);
}

}  // namespace

VisionTransformerMlp::VisionTransformerMlp(const Options& options)
    : hidden(this, "0", options.hidden_dim, options.mlp_dim, options.tensor),
      out(this, "3", options.mlp_dim, options.hidden_dim, options.tensor),
      drop(this, "drop", options.dropout) {
  constexpr double deviation = 1e-6;
  for (const auto* layer : {&hidden, &out}) {
    nn::init::xavier_uniform_((*layer)->weight);
    nn::init::normal_((*layer)->bias, 0.0, deviation);
  }
}

Tensor VisionTransformerMlp::forward(const Tensor& x, const Tensor& addend) const {
  if (drop->is_active()) {
    const Tensor y = drop(out(drop(gelu(hidden(x)))));
    return addend.defined() ? addend + y : y;
  }
  if (hidden->has_call_hooks() || out->has_call_hooks())
    return nn::plus(addend, out, gelu(hidden(x)));
  return lockstep::mlp(x, {hidden->weight, hidden->bias, out->weight, out->bias},
                       {.approximation = GeluApproximation::none, .addend = addend});
}

VisionTransformerBlock::VisionTransformerBlock(const Options& options)
    : ln_1(this, "ln_1", norm_options(options, NormResult::for_products)),
      self_attention(this, "self_attention",
                     nn::MultiheadAttentionOptions{.features = options.hidden_dim,
                                                   .heads = options.heads,
                                                   .dropout = options.attention_dropout,
                                                   .tensor = options.tensor}),
      dropout(this, "dropout", options.dropout),
      ln_2(this, "ln_2", norm_options(options, NormResult::for_products)),
      mlp(this, "mlp", options) {}

Tensor VisionTransformerBlock::forward(const Tensor& x) const {
  // Residuals are parts of the products, unless hooks want to see what a branch gives.
  const bool apart = dropout->is_active() || self_attention->has_call_hooks();
  const Tensor attended = apart ? x + dropout(self_attention(ln_1(x)))
                                : self_attention(ln_1(x), nn::AttentionMask{}, x);
  return mlp->has_call_hooks() ? attended + mlp(ln_2(attended)) : mlp(ln_2(attended), attended);
}

VisionTransformerEncoder::VisionTransformerEncoder(const Options& options)
    : pos_embedding(this, "pos_embedding", initial_positions(options)),
      dropout(this, "dropout", options.dropout),
      layers(this, "layers"),
      ln(this, "ln", norm_options(options, NormResult::for_products)) {
  for (std::int64_t i = 0; i < options.layers; ++i)
    layers->append("encoder_layer_" + std::to_string(i), nn::make<VisionTransformerBlock>(options));
}

Tensor VisionTransformerEncoder::forward(const Tensor& x) const {
  return ln(layers(dropout(x + pos_embedding)));
}

VisionTransformerHeads::VisionTransformerHeads(const Options& options)
    : head(this, "head", options.hidden_dim, options.num_classes, options.tensor) {
  nn::init::zeros_(head->weight);
  nn::init::zeros_(head->bias);
}

VisionTransformer::VisionTransformer(const Options& options)
    : options_(checked(options)),
      class_token(this, "class_token", zeros({1, 1, options.hidden_dim}, options.tensor)),
      conv_proj(this, "conv_proj", patch_options(options)),
      encoder(this, "encoder", options),
      heads(this, "heads", options) {
  const auto fan_in = static_cast<double>(nn::init::fans_of(conv_proj->weight).in);
  nn::init::trunc_normal_(conv_proj->weight, {.deviation = std::sqrt(1.0 / fan_in)});
  nn::init::zeros_(conv_proj->bias);
}

Tensor VisionTransformer::forward(const Tensor& images) const {
  const std::int64_t side = options_.image_size;
  const bool fits = images.dim() == 4 && images.size(1) == options_.in_channels &&
                    images.size(2) == side && images.size(3) == side;
  LOCKSTEP_CHECK(fits, InvalidArgument, "VisionTransformer: images of shape ", images.shape(),
                 "; expected [N, ", options_.in_channels, ", ", side, ", ", side, "]");
  const Tensor patches = conv_proj(images).flatten(2).transpose(1, 2);
  const std::array parts{class_token.expand({images.size(0), 1, options_.hidden_dim}), patches};
  return heads(encoder(cat(parts, 1)).select(1, 0));
}

std::string VisionTransformer::describe() const {
  lockstep::detail::TextStream out;
  out << "image_size=" << options_.image_size << ", patch_size=" << options_.patch_size
      << ", layers=" << options_.layers << ", heads=" << options_.heads
      << ", hidden_dim=" << options_.hidden_dim << ", mlp_dim=" << options_.mlp_dim
      << ", num_classes=" << options_.num_classes;
  return out.str();
}

nn::ModulePtr<VisionTransformer> vit_b_16(const Options& options) {
  return network({16, 12, 12, 768, 3072}, options);
}
nn::ModulePtr<VisionTransformer> vit_b_32(const Options& options) {
  return network({32, 12, 12, 768, 3072}, options);
}
nn::ModulePtr<VisionTransformer> vit_l_16(const Options& options) {
  return network({16, 24, 16, 1024, 4096}, options);
}
nn::ModulePtr<VisionTransformer> vit_l_32(const Options& options) {
  return network({32, 24, 16, 1024, 4096}, options);
}
nn::ModulePtr<VisionTransformer> vit_h_14(const Options& options) {
  return network({14, 32, 16, 1280, 5120}, options);
}

}  // namespace lockstep::models
