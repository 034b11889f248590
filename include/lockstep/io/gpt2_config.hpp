#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/io/special_tokens.hpp"

/// @file
/// The sizes of a Hugging Face GPT-2 checkpoint: its config.json.

namespace lockstep::io {

/// Sizes of a GPT-2, with the published small model's as defaults.
struct Gpt2Config {
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t channels = 768;
  /// Longest sequence.
  std::int64_t positions = 1024;
  std::int64_t vocabulary = 50257;
  double layer_norm_epsilon = 1e-5;
  SpecialTokens special_tokens = {};
  /// In training, after the embedding and each residual branch: written, not read.
  double dropout = 0.0;
  /// Of attention's weights, likewise.
  double attention_dropout = 0.0;
  friend bool operator==(const Gpt2Config&, const Gpt2Config&) = default;
};

/// Reads the config.json that transformers' `save_pretrained` writes.
/// @throws FileError; CorruptData for broken JSON, missing or impossible sizes; Unsupported for
/// another model type, or settings that change what a GPT-2 computes (another activation or inner
/// width, untied output weights, other attention scaling).
Gpt2Config read_gpt2_config(const std::filesystem::path& path);

/// Writes a config.json that transformers' `from_pretrained` reads, replacing the file at once.
/// @throws FileError.
void write_gpt2_config(const std::filesystem::path& path, const Gpt2Config& config);

}  // namespace lockstep::io
