#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/io/special_tokens.hpp"
#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/module_list.hpp"
#include "lockstep/nn/norm.hpp"

/// @file
/// GPT-2 (Radford et al. 2019), with Hugging Face's names.

namespace lockstep::models {

/// Sizes of a GPT-2. The defaults are those of the smallest published one, of 124 M parameters.
struct Gpt2Options {
  std::int64_t layers = 12, heads = 12;
  std::int64_t channels = 768;      ///< features of each position; a multiple of `heads`
  std::int64_t context = 1024;      ///< longest sequence
  std::int64_t vocabulary = 50257;  ///< number of tokens
  double dropout = 0.0;             ///< after the embedding and each residual branch
  double attention_dropout = 0.0;   ///< of attention's weights: Hugging Face's attn_pdrop
  double norm_eps = 1e-5;
  io::SpecialTokens special_tokens = {};  ///< for files of Hugging Face's
  TensorOptions tensor = {};              ///< dtype and device of the parameters
};

/// Where tokens stand and what they see, if a sequence is not one text.
struct Gpt2ForwardOptions {
  /// i64 [batch, time] or [1, time]: the place of each token, the `position_ids` of Hugging Face;
  /// undefined: 0, 1, 2, ...
  Tensor positions = {};
  /// Bool, broadcast to [batch, heads, time, time]: true where a token sees another one, if that is
  /// not behind it anyway; undefined: everywhere.
  Tensor mask = {};
};

/// Causal self-attention; queries, keys and values from one product.
struct Gpt2Attention : nn::Module {
  /// @throws InvalidArgument for heads that do not divide the channels.
  explicit Gpt2Attention(const Gpt2Options& options);
  /// @param x [batch, time, channels]. @param mask as in Gpt2ForwardOptions. @param addend what the
  /// result is added to, of x's shape, or undefined. @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& mask = {}, const Tensor& addend = {}) const;

  std::int64_t heads;
  double dropout;  ///< of the weights, in training
  nn::Child<nn::Linear> c_attn;
  nn::Child<nn::Linear> c_proj;
};

/// The feed-forward part: four times as wide inside, with GELU by its tanh approximation.
struct Gpt2Mlp : nn::Module {
  /// The part of the given sizes.
  explicit Gpt2Mlp(const Gpt2Options& options);
  /// @param x [batch, time, channels]. @param addend as in Gpt2Attention. @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& addend = {}) const;

  nn::Child<nn::Linear> c_fc;
  nn::Child<nn::Linear> c_proj;
};

/// One layer: attention, then the feed-forward part, each behind a norm and beside a residual.
struct Gpt2Block : nn::Module {
  /// The layer of the given sizes.
  explicit Gpt2Block(const Gpt2Options& options);
  /// @param x [batch, time, channels]. @param mask as in Gpt2ForwardOptions. @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& mask = {}) const;

  nn::Child<nn::LayerNorm> ln_1;
  nn::Child<Gpt2Attention> attn;
  nn::Child<nn::LayerNorm> ln_2;
  nn::Child<Gpt2Mlp> mlp;
  nn::Child<nn::Dropout> drop;
};

/// All but the output layer.
struct Gpt2Transformer : nn::Module {
  /// The stack of the given sizes.
  explicit Gpt2Transformer(const Gpt2Options& options);
  /// @param tokens i64 [batch, time]. @return [batch, time, channels].
  Tensor forward(const Tensor& tokens, const Gpt2ForwardOptions& options = {}) const;

  nn::Child<nn::Embedding> wte;
  nn::Child<nn::Embedding> wpe;
  nn::Child<nn::Dropout> drop;
  nn::Child<nn::ModuleList<Gpt2Block>> h;
  nn::Child<nn::LayerNorm> ln_f;
};

/// The language model. The output layer's weight is the token embedding's. Starts as GPT-2 did:
/// normal with deviation 0.02, that of the residual branches' last layers over sqrt(2 layers),
/// biases 0. Its linear layers hold [out, in]; the files of Hugging Face hold [in, out], and
/// loading and saving transposes.
class Gpt2 : public nn::Module {
 public:
  using Options = Gpt2Options;
  /// @throws InvalidArgument for sizes below 1 or heads that do not divide the channels.
  explicit Gpt2(const Gpt2Options& options);

  /// @param tokens i64 [batch, time], time at most the context. @return logits [batch, time,
  /// vocabulary].
  /// @param options for packed documents (data::PackedDataset), each of which gets what it would
  /// alone: `{.positions = batch.positions, .mask = batch.mask()}`.
  /// @throws InvalidArgument for another shape, or a token or position out of range (CPU).
  Tensor forward(const Tensor& tokens, const Gpt2ForwardOptions& options = {}) const;
  /// The loss of predicting the targets, `cross_entropy` of the logits; these are never there as a
  /// whole, and their products run at full speed whatever the vocabulary's size is
  /// (`linear_cross_entropy`). To train: model(tokens, targets).
  /// @param targets i64 of the tokens' shape. @param options as above. @param loss of
  /// `linear_cross_entropy`; without a bias.
  /// @throws InvalidArgument as above, and for targets of another shape or out of range (CPU).
  Tensor forward(const Tensor& tokens, const Tensor& targets,
                 const Gpt2ForwardOptions& options = {},
                 const LinearCrossEntropyOptions& loss = {}) const;
  /// What it was made from.
  const Gpt2Options& options() const noexcept { return options_; }
  std::string describe() const override;

 private:
  Gpt2Options options_;

 public:
  nn::Child<Gpt2Transformer> transformer;
};

/// A new GPT-2.
inline nn::ModulePtr<Gpt2> gpt2(const Gpt2Options& options = {}) { return nn::make<Gpt2>(options); }

/// Reads a GPT-2 that Hugging Face's transformers, or `save_hugging_face`, saved.
/// @param path a folder with config.json and model.safetensors, or shards with their
/// model.safetensors.index.json; or a safetensors file with its config.json beside it.
/// @param tensor dtype and device of the parameters, whatever the file's dtype is. Dropout is 0.
/// @throws FileError, CorruptData, Unsupported for a model that is no GPT-2 of this form,
/// InvalidArgument naming the file and tensors that are missing, unexpected or of another shape.
nn::ModulePtr<Gpt2> load_hugging_face(const std::filesystem::path& path, TensorOptions tensor = {});

/// Writes a GPT-2 so that transformers' `from_pretrained` reads it back: config.json and
/// model.safetensors in a folder, which is made if it is missing, or beside each other if `path`
/// ends in .safetensors.
/// @throws FileError.
void save_hugging_face(const Gpt2& model, const std::filesystem::path& path);

}  // namespace lockstep::models
