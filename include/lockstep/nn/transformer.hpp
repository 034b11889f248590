#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/module_list.hpp"
#include "lockstep/nn/norm.hpp"

/// @file
/// Encoders and decoders of the transformer (Vaswani et al. 2017), over batches first. Names, order
/// and initial values of the parameters are PyTorch's.

namespace lockstep::nn {

/// What a transformer layer's feed-forward part has between its two products.
enum class TransformerActivation : unsigned char { relu, gelu };

/// Options of TransformerEncoderLayer and TransformerDecoderLayer.
struct TransformerLayerOptions {
  std::int64_t features = 0;            ///< of inputs and results: PyTorch's d_model
  std::int64_t heads = 1;               ///< must divide the features
  std::int64_t dim_feedforward = 2048;  ///< features between the two products
  double dropout = 0.1;                 ///< in training, of each branch and within the last
  /// Of the weights of attention, as `dropout` if not given, as PyTorch has it. 0 lets fused
  /// kernels compute attention, without its scores in memory.
  std::optional<double> attention_dropout = {};
  TransformerActivation activation = TransformerActivation::relu;
  double layer_norm_eps = 1e-5;
  bool norm_first = false;  ///< normalise what goes into a branch, not its sum with the residual
  bool bias = true;         ///< of products and norms
  TensorOptions tensor = {};
};

/// Self-attention and a feed-forward part, each with a residual and a norm.
class TransformerEncoderLayer : public Module {
 public:
  using Options = TransformerLayerOptions;
  /// @throws InvalidArgument for heads that do not divide the features, extents below 1 and a
  /// dropout outside [0, 1].
  explicit TransformerEncoderLayer(const TransformerLayerOptions& options);

  /// @param x [N, T, features]. @param mask what the queries do not see; of padding
  /// [N, 1, 1, T]. @return x's shape.
  Tensor forward(const Tensor& x, const AttentionMask& mask = {}) const;
  std::string describe() const override;

 private:
  TransformerActivation activation_;
  bool norm_first_;

 public:
  Child<MultiheadAttention> self_attn;
  Child<Linear> linear1;
  Child<Dropout> dropout;  ///< between the products
  Child<Linear> linear2;
  Child<LayerNorm> norm1, norm2;
  Child<Dropout> dropout1, dropout2;  ///< of what the branches give
};

/// Options of TransformerEncoder and TransformerDecoder.
struct TransformerOptions {
  TransformerLayerOptions layer = {};  ///< of each; all draw initial values of their own
  std::int64_t num_layers = 6;
  bool norm = false;  ///< a LayerNorm at the end
};

/// Encoder layers behind one another.
class TransformerEncoder : public Module {
 public:
  using Options = TransformerOptions;
  /// @throws InvalidArgument for less than one layer, and as TransformerEncoderLayer.
  explicit TransformerEncoder(const TransformerOptions& options);

  /// @param x [N, T, features]. @param mask of all layers. @return x's shape.
  Tensor forward(const Tensor& x, const AttentionMask& mask = {}) const;

  Child<ModuleList<TransformerEncoderLayer>> layers;
  std::optional<Child<LayerNorm>> norm;
};

/// Self-attention, attention to what an encoder gave, and a feed-forward part, each with a residual
/// and a norm.
class TransformerDecoderLayer : public Module {
 public:
  using Options = TransformerLayerOptions;
  /// @throws as TransformerEncoderLayer.
  explicit TransformerDecoderLayer(const TransformerLayerOptions& options);

  /// @param x [N, T, features]. @param memory [N, S, features], of the encoder.
  /// @param mask of self-attention. @param memory_mask of attention to the memory, T queries of S
  /// keys. @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& memory, const AttentionMask& mask = {},
                 const AttentionMask& memory_mask = {}) const;
  std::string describe() const override;

 private:
  TransformerActivation activation_;
  bool norm_first_;

 public:
  Child<MultiheadAttention> self_attn, multihead_attn;
  Child<Linear> linear1;
  Child<Dropout> dropout;  ///< between the products
  Child<Linear> linear2;
  Child<LayerNorm> norm1, norm2, norm3;
  Child<Dropout> dropout1, dropout2, dropout3;  ///< of what the branches give
};

/// Decoder layers behind one another.
class TransformerDecoder : public Module {
 public:
  using Options = TransformerOptions;
  /// @throws InvalidArgument for less than one layer, and as TransformerDecoderLayer.
  explicit TransformerDecoder(const TransformerOptions& options);

  /// @param x [N, T, features]. @param memory [N, S, features]. @param mask, memory_mask of all
  /// layers. @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& memory, const AttentionMask& mask = {},
                 const AttentionMask& memory_mask = {}) const;

  Child<ModuleList<TransformerDecoderLayer>> layers;
  std::optional<Child<LayerNorm>> norm;
};

}  // namespace lockstep::nn
