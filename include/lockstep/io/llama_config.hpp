#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lockstep/io/special_tokens.hpp"

/// @file
/// The sizes of a Hugging Face Llama checkpoint: its config.json.

namespace lockstep::io {

/// How Llama 3.1 and later stretch rotary frequencies over a longer context than that of their
/// first training: `rope_scaling` of type "llama3" in transformers.
struct RopeScaling {
  double factor = 32.0;           ///< by which the slowest frequencies are divided
  double low_freq_factor = 1.0;   ///< slower than this many turns in the first context: divided
  double high_freq_factor = 4.0;  ///< faster than this many turns: kept; between: blended
  std::int64_t original_max_position_embeddings = 8192;  ///< the first context
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// Sizes of a Llama, with those of Llama 3.2 1B as defaults.
struct LlamaConfig {
  std::int64_t layers = 16, heads = 32;
  std::int64_t kv_heads = 8;  ///< divides `heads`
  std::int64_t head_dim = 64;
  std::int64_t channels = 2048;
  std::int64_t intermediate = 8192;
  std::int64_t positions = 131072;  ///< longest sequence
  std::int64_t vocabulary = 128256;
  double rope_theta = 500000.0;
  std::optional<RopeScaling> rope_scaling = RopeScaling{};
  double norm_eps = 1e-5;
  bool tied_embeddings = true;
  std::int64_t padding_index = -1;  ///< `pad_token_id`; -1: none
  SpecialTokens special_tokens = {};
  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

/// Reads the config.json that transformers' `save_pretrained` writes, of version 4 or 5.
/// @throws FileError; CorruptData for broken JSON, missing or impossible sizes; Unsupported for
/// another model type, or settings that change what a Llama computes (biases, another activation,
/// dropout, other scaling of rotary frequencies, settings of these that differ in two places,
/// quantised weights).
LlamaConfig read_llama_config(const std::filesystem::path& path);

/// Writes a config.json that transformers' `from_pretrained` reads, replacing the file at once.
/// @throws FileError.
void write_llama_config(const std::filesystem::path& path, const LlamaConfig& config);

}  // namespace lockstep::io
