#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/io/llama_config.hpp"
#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/module_list.hpp"
#include "lockstep/nn/norm.hpp"

/// @file
/// Llama (Touvron et al. 2023, Grattafiori et al. 2024), with Hugging Face's names.

namespace lockstep::models {

using io::RopeScaling;

/// Sizes of a Llama, which has no dropout. The defaults are those of Llama 3.2 1B, of 1.24 G
/// parameters.
struct LlamaOptions {
  std::int64_t layers = 16, heads = 32;
  std::int64_t kv_heads = 8;         ///< heads of keys and values; divides `heads`
  std::int64_t head_dim = 64;        ///< features of each head; even
  std::int64_t channels = 2048;      ///< features of each position
  std::int64_t intermediate = 8192;  ///< features inside the feed-forward part
  std::int64_t context = 131072;     ///< longest sequence
  std::int64_t vocabulary = 128256;  ///< number of tokens
  double rope_theta = 500000.0;      ///< base of the rotary frequencies
  std::optional<RopeScaling> rope_scaling = RopeScaling{};
  double norm_eps = 1e-5;
  bool tied_embeddings = true;  ///< the output layer's weight is the token embedding's
  /// A token whose embedding starts at 0 and gets no gradient as such, `pad_token_id`; -1: none.
  std::int64_t padding_index = -1;
  io::SpecialTokens special_tokens = {};  ///< for files of Hugging Face's
  TensorOptions tensor = {};              ///< dtype and device of the parameters
};

/// Where tokens stand and what they see, if a sequence is not one text.
struct LlamaForwardOptions {
  /// i64 [batch, time] or [1, time]: the place of each token, the `position_ids` of Hugging Face;
  /// undefined: 0, 1, 2, ...
  Tensor positions = {};
  /// Bool, broadcast to [batch, heads, time, time]: true where a token sees another one, if that is
  /// not behind it anyway; undefined: everywhere.
  Tensor mask = {};
};

/// Cosines and sines by which queries and keys are turned, [batch or 1, 1, time, head_dim / 2].
struct RotaryTables {
  Tensor cos, sin;
};

/// Rotary position embedding (Su et al. 2021): pair i of a head's features turns by the position
/// times frequency i. Pairs are features i and i + head_dim / 2, as at Hugging Face.
struct LlamaRotaryEmbedding : nn::Module {
  /// The frequencies theta^(-2 i / head_dim), scaled.
  explicit LlamaRotaryEmbedding(const LlamaOptions& options);
  /// @param positions i64 [batch or 1, time]. @return tables in f32, or f64 for a model in f64.
  RotaryTables forward(const Tensor& positions) const;

  nn::Buffer inv_freq;  ///< [head_dim / 2], f32 at least; not part of the state
};

/// Causal self-attention in which groups of query heads share a head of keys and values.
struct LlamaAttention : nn::Module {
  /// The layer of the given sizes.
  explicit LlamaAttention(const LlamaOptions& options);
  /// @param x [batch, time, channels]. @param mask as in LlamaForwardOptions. @param addend what
  /// the result is added to, of x's shape, or undefined. @return x's shape.
  Tensor forward(const Tensor& x, const RotaryTables& tables, const Tensor& mask = {},
                 const Tensor& addend = {}) const;

  std::int64_t head_dim;
  nn::Child<nn::Linear> q_proj;
  nn::Child<nn::Linear> k_proj;
  nn::Child<nn::Linear> v_proj;
  nn::Child<nn::Linear> o_proj;
};

/// The feed-forward part: down(silu(gate(x)) * up(x)) (SwiGLU, Shazeer 2020).
struct LlamaMlp : nn::Module {
  /// The part of the given sizes.
  explicit LlamaMlp(const LlamaOptions& options);
  /// @param x [batch, time, channels]. @param addend as in LlamaAttention. @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& addend = {}) const;

  nn::Child<nn::Linear> gate_proj;
  nn::Child<nn::Linear> up_proj;
  nn::Child<nn::Linear> down_proj;
};

/// One layer: attention, then the feed-forward part, each behind a norm and beside a residual.
struct LlamaDecoderLayer : nn::Module {
  /// The layer of the given sizes.
  explicit LlamaDecoderLayer(const LlamaOptions& options);
  /// @param x [batch, time, channels]. @param mask as in LlamaForwardOptions. @return x's shape.
  Tensor forward(const Tensor& x, const RotaryTables& tables, const Tensor& mask = {}) const;

  nn::Child<LlamaAttention> self_attn;
  nn::Child<LlamaMlp> mlp;
  nn::Child<nn::RMSNorm> input_layernorm;
  nn::Child<nn::RMSNorm> post_attention_layernorm;
};

/// All but the output layer.
struct LlamaModel : nn::Module {
  /// The stack of the given sizes.
  explicit LlamaModel(const LlamaOptions& options);
  /// @param tokens i64 [batch, time]. @return [batch, time, channels].
  Tensor forward(const Tensor& tokens, const LlamaForwardOptions& options = {}) const;

  std::int64_t context;
  nn::Child<nn::Embedding> embed_tokens;
  nn::Child<nn::ModuleList<LlamaDecoderLayer>> layers;
  nn::Child<nn::RMSNorm> norm;
  nn::Child<LlamaRotaryEmbedding> rotary_emb;
};

/// The language model. Starts normal with deviation 0.02, norms at 1.
class Llama : public nn::Module {
 public:
  using Options = LlamaOptions;
  /// @throws InvalidArgument for sizes below 1, an odd `head_dim`, `kv_heads` that do not divide
  /// the heads, or a padding index past the vocabulary.
  explicit Llama(const LlamaOptions& options);

  /// @param tokens i64 [batch, time], time at most the context. @return logits [batch, time,
  /// vocabulary].
  /// @param options for packed documents (data::PackedDataset), each of which gets what it would
  /// alone: `{.positions = batch.positions, .mask = batch.mask()}`.
  /// @throws InvalidArgument for another shape, or a token out of range (CPU).
  Tensor forward(const Tensor& tokens, const LlamaForwardOptions& options = {}) const;
  /// The loss of predicting the targets, `linear_cross_entropy`: the logits are never there as a
  /// whole. To train: model(tokens, targets).
  /// @param targets i64 of the tokens' shape. @param options as above.
  /// @throws InvalidArgument as above, and for targets of another shape or out of range (CPU).
  Tensor forward(const Tensor& tokens, const Tensor& targets,
                 const LlamaForwardOptions& options = {},
                 const LinearCrossEntropyOptions& loss = {}) const;
  /// What it was made from.
  const LlamaOptions& options() const noexcept { return options_; }
  std::string describe() const override;

 private:
  const Tensor& output_weight() const;
  LlamaOptions options_;

 public:
  nn::Child<LlamaModel> model;
  std::optional<nn::Child<nn::Linear>> lm_head;  ///< absent with tied embeddings
};

/// A new Llama.
inline nn::ModulePtr<Llama> llama(const LlamaOptions& options = {}) {
  return nn::make<Llama>(options);
}

/// Reads a Llama that Hugging Face's transformers, or `save_hugging_face`, saved.
/// @param path a folder with config.json and model.safetensors, or several such files with their
/// model.safetensors.index.json; or a safetensors file with its config.json beside it.
/// @param tensor dtype and device of the parameters, whatever the files' dtype is.
/// @throws FileError, CorruptData, Unsupported for a model that is no Llama of this form,
/// InvalidArgument naming the path and tensors that are missing, unexpected or of another shape.
nn::ModulePtr<Llama> load_hugging_face_llama(const std::filesystem::path& path,
                                             TensorOptions tensor = {});

/// Writes a Llama so that transformers' `from_pretrained` reads it back: config.json and
/// model.safetensors, or several files and their index, in a folder, which is made if it is
/// missing.
/// @param shard_bytes most bytes of tensors in a file.
/// @throws FileError; InvalidArgument for heads that do not divide the channels, which transformers
/// does not read, and for a model with adapters (nn/lora.hpp).
void save_hugging_face(const Llama& model, const std::filesystem::path& folder,
                       std::uint64_t shard_bytes = 5'000'000'000);

}  // namespace lockstep::models
