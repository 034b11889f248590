#include "lockstep/io/gpt2_config.hpp"

#include "io/config_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::io {
namespace {

/// A size under GPT-2's name, or under the one that all models of transformers have, which wins
/// there.
std::int64_t size(const ConfigFile& file, const char* name, const char* common) {
  return file.size(file.has(common) ? common : name);
}

}  // namespace

Gpt2Config read_gpt2_config(const std::filesystem::path& path) {
  const ConfigFile file = ConfigFile::read(path, "GPT-2");
  file.require("model_type", {"gpt2"});
  constexpr const char* epsilon = "layer_norm_epsilon";
  const Gpt2Config config{.layers = size(file, "n_layer", "num_hidden_layers"),
                          .heads = size(file, "n_head", "num_attention_heads"),
                          .channels = size(file, "n_embd", "hidden_size"),
                          .positions = size(file, "n_positions", "max_position_embeddings"),
                          .vocabulary = file.size("vocab_size"),
                          .layer_norm_epsilon = file.values.contains(epsilon)
                                                    ? file.epsilon(epsilon)
                                                    : Gpt2Config().layer_norm_epsilon,
                          .special_tokens = file.special_tokens()};
  LOCKSTEP_CHECK(config.channels % config.heads == 0, CorruptData, file.name, ": 'n_embd' is ",
                 config.channels, ", which 'n_head' = ", config.heads, " does not divide");
  file.require("n_inner", {nullptr, 4 * config.channels});
  file.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  file.require("tie_word_embeddings", {true});
  file.require("scale_attn_weights", {true});
  file.require("scale_attn_by_inverse_layer_idx", {false});
  file.require("reorder_and_upcast_attn", {false});
  file.require("add_cross_attention", {false});
  return config;
}

void write_gpt2_config(const std::filesystem::path& path, const Gpt2Config& config) {
  nlohmann::ordered_json values{{"architectures", {"GPT2LMHeadModel"}},
                                {"model_type", "gpt2"},
                                {"activation_function", "gelu_new"},
                                {"n_layer", config.layers},
                                {"n_head", config.heads},
                                {"n_embd", config.channels},
                                {"n_inner", nullptr},
                                {"n_positions", config.positions},
                                {"vocab_size", config.vocabulary},
                                {"layer_norm_epsilon", config.layer_norm_epsilon},
                                {"tie_word_embeddings", true},
                                {"attn_pdrop", config.attention_dropout},
                                {"embd_pdrop", config.dropout},
                                {"resid_pdrop", config.dropout}};
  add_special_tokens(values, config.special_tokens);
  write_json(path, values);
}

}  // namespace lockstep::io
