#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/conv2d.hpp"
#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/nn/sequential.hpp"

/// @file
/// Vision transformers (Dosovitskiy et al. 2021), with torchvision's names.

namespace lockstep::models {

/// Sizes of a vision transformer. The defaults are those of ViT-B/16.
struct VisionTransformerOptions {
  std::int64_t image_size = 224;  ///< pixels of a side
  std::int64_t patch_size = 16;   ///< pixels of a side; divides the image's
  std::int64_t in_channels = 3;
  std::int64_t layers = 12, heads = 12;
  std::int64_t hidden_dim = 768;  ///< features of each position
  std::int64_t mlp_dim = 3072;    ///< features inside the feed-forward part
  std::int64_t num_classes = 1000;
  double dropout = 0.0;            ///< while training; attention itself has its own
  double attention_dropout = 0.0;  ///< of attention's weights, while training
  double norm_eps = 1e-6;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// The feed-forward part, with GELU.
struct VisionTransformerMlp : nn::Module {
  /// The part of the given sizes.
  explicit VisionTransformerMlp(const VisionTransformerOptions& options);
  /// @param x [N, T, hidden_dim]. @param addend what the result is added to, of x's shape, or
  /// undefined. @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& addend = {}) const;

  nn::Child<nn::Linear> hidden;  ///< named "0", as torchvision's sequence of layers has it
  nn::Child<nn::Linear> out;     ///< named "3"
  nn::Child<nn::Dropout> drop;
};

/// One layer: attention, then the feed-forward part, each behind a norm and beside a residual.
struct VisionTransformerBlock : nn::Module {
  /// The layer of the given sizes.
  explicit VisionTransformerBlock(const VisionTransformerOptions& options);
  /// @param x [N, T, hidden_dim]. @return x's shape.
  Tensor forward(const Tensor& x) const;

  nn::Child<nn::LayerNorm> ln_1;
  nn::Child<nn::MultiheadAttention> self_attention;
  nn::Child<nn::Dropout> dropout;
  nn::Child<nn::LayerNorm> ln_2;
  nn::Child<VisionTransformerMlp> mlp;
};

/// The stack of layers behind learned positions. These start normal with deviation 0.02.
struct VisionTransformerEncoder : nn::Module {
  /// The stack of the given sizes.
  explicit VisionTransformerEncoder(const VisionTransformerOptions& options);
  /// @param x [N, T, hidden_dim], T one more than there are patches. @return x's shape.
  Tensor forward(const Tensor& x) const;

  nn::Parameter pos_embedding;  ///< [1, T, hidden_dim]
  nn::Child<nn::Dropout> dropout;
  nn::Child<nn::Sequential> layers;  ///< "encoder_layer_0", ...
  nn::Child<nn::LayerNorm> ln;
};

/// What makes classes of the class token.
struct VisionTransformerHeads : nn::Module {
  /// A linear layer that starts at 0.
  explicit VisionTransformerHeads(const VisionTransformerOptions& options);
  /// @param x [N, hidden_dim]. @return [N, num_classes].
  Tensor forward(const Tensor& x) const { return head(x); }

  nn::Child<nn::Linear> head;
};

/// The classifier: patches of an image, and a class token before them, through an encoder. It
/// starts as torchvision's does.
class VisionTransformer : public nn::Module {
 public:
  using Options = VisionTransformerOptions;
  /// @throws InvalidArgument for sizes below 1, patches that do not divide the image, or heads that
  /// do not divide the features.
  explicit VisionTransformer(const VisionTransformerOptions& options);

  /// @param images [N, in_channels, image_size, image_size]; channels-last ones need no copies.
  /// @return logits [N, num_classes]. @throws InvalidArgument for another shape.
  Tensor forward(const Tensor& images) const;
  /// What it was made from.
  const VisionTransformerOptions& options() const noexcept { return options_; }
  std::string describe() const override;

 private:
  VisionTransformerOptions options_;

 public:
  nn::Parameter class_token;  ///< [1, 1, hidden_dim]
  nn::Child<nn::Conv2d> conv_proj;
  nn::Child<VisionTransformerEncoder> encoder;
  nn::Child<VisionTransformerHeads> heads;
};

/// ViT-B/16, of 86.6 M parameters. Of the options, those count that are not sizes of the network:
/// image_size, in_channels, num_classes, dropout, attention_dropout, norm_eps
/// and tensor. So for the others.
nn::ModulePtr<VisionTransformer> vit_b_16(const VisionTransformerOptions& options = {});
/// ViT-B/32, of 88.2 M parameters.
nn::ModulePtr<VisionTransformer> vit_b_32(const VisionTransformerOptions& options = {});
/// ViT-L/16, of 304 M parameters.
nn::ModulePtr<VisionTransformer> vit_l_16(const VisionTransformerOptions& options = {});
/// ViT-L/32, of 307 M parameters.
nn::ModulePtr<VisionTransformer> vit_l_32(const VisionTransformerOptions& options = {});
/// ViT-H/14, of 632 M parameters.
nn::ModulePtr<VisionTransformer> vit_h_14(const VisionTransformerOptions& options = {});

}  // namespace lockstep::models
