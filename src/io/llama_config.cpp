#include "lockstep/io/llama_config.hpp"

#include <limits>

#include "io/config_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::io {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The settings of rotary frequencies: transformers 5 has them together, 4 has the base beside.
void read_rope(const ConfigFile& file, LlamaConfig& config) {
  const auto together = file.object("rope_parameters"), scaling = file.object("rope_scaling");
  LOCKSTEP_CHECK(!together || !scaling || together->values == scaling->values, Unsupported,
                 file.name, ": 'rope_parameters' and 'rope_scaling' differ; leave one of them");
  const auto rope = together ? together : scaling;
  // Beside the settings as in them; twice, if they agree.
  for (const char* key : {"rope_theta", "original_max_position_embeddings"})
    if (rope && rope->has(key) && file.has(key)) file.require(key, {rope->values[key]});
  const ConfigFile& base = rope && rope->has("rope_theta") ? *rope : file;
  config.rope_theta = base.has("rope_theta") ? base.number("rope_theta", 0.0, infinity) : 10000.0;
  config.rope_scaling.reset();
  file.require("partial_rotary_factor", {1.0, nullptr});
  if (!rope) return;
  rope->require("partial_rotary_factor", {1.0, nullptr});
  const char* const type = rope->has("rope_type") ? "rope_type" : "type";
  rope->require(type, {"llama3", "default"});
  if (!rope->has(type) || rope->values[type] == "default") return;
  const double low = rope->number("low_freq_factor", 0.0, infinity);
  config.rope_scaling = {.factor = rope->number("factor", 0.0, infinity),
                         .low_freq_factor = low,
                         .high_freq_factor = rope->number("high_freq_factor", low, infinity),
                         .original_max_position_embeddings =
                             (rope->has("original_max_position_embeddings") ? *rope : file)
                                 .size("original_max_position_embeddings")};
}

void require_supported(const ConfigFile& file) {
  file.require("hidden_act", {"silu", "swish"});
  file.require("attention_bias", {false});
  file.require("mlp_bias", {false});
  file.require("attention_dropout", {0.0, nullptr});
  file.require("quantization_config", {nullptr});
}

}  // namespace

LlamaConfig read_llama_config(const std::filesystem::path& path) {
  const ConfigFile file = ConfigFile::read(path, "Llama");
  file.require("model_type", {"llama"});
  require_supported(file);
  LlamaConfig config{.layers = file.size("num_hidden_layers"),
                     .heads = file.size("num_attention_heads"),
                     .channels = file.size("hidden_size"),
                     .intermediate = file.size("intermediate_size"),
                     .positions = file.size("max_position_embeddings"),
                     .vocabulary = file.size("vocab_size"),
                     .norm_eps = file.epsilon("rms_norm_eps"),
                     .tied_embeddings = file.flag("tie_word_embeddings", false),
                     .special_tokens = file.special_tokens()};
  config.kv_heads = file.size_or("num_key_value_heads", config.heads);
  LOCKSTEP_CHECK(config.heads % config.kv_heads == 0, CorruptData, file.name,
                 ": 'num_attention_heads' is ", config.heads,
                 ", which 'num_key_value_heads' = ", config.kv_heads, " does not divide");
  if (file.has("pad_token_id")) config.padding_index = file.row("pad_token_id", config.vocabulary);
  LOCKSTEP_CHECK(file.has("head_dim") || config.channels % config.heads == 0, CorruptData,
                 file.name, ": 'hidden_size' is ", config.channels,
                 ", which 'num_attention_heads' = ", config.heads, " does not divide");
  config.head_dim = file.size_or("head_dim", config.channels / config.heads);
  LOCKSTEP_CHECK(config.head_dim % 2 == 0, CorruptData, file.name, ": heads of ", config.head_dim,
                 " features; rotary embeddings turn pairs, so that it must be even");
  read_rope(file, config);
  return config;
}

void write_llama_config(const std::filesystem::path& path, const LlamaConfig& config) {
  nlohmann::ordered_json scaling;  // null
  if (const auto& rope = config.rope_scaling)
    scaling = {{"rope_type", "llama3"},
               {"factor", rope->factor},
               {"low_freq_factor", rope->low_freq_factor},
               {"high_freq_factor", rope->high_freq_factor},
               {"original_max_position_embeddings", rope->original_max_position_embeddings}};
  nlohmann::ordered_json padding;
  if (config.padding_index >= 0) padding = config.padding_index;
  nlohmann::ordered_json values{{"architectures", {"LlamaForCausalLM"}},
                                {"model_type", "llama"},
                                {"hidden_act", "silu"},
                                {"num_hidden_layers", config.layers},
                                {"num_attention_heads", config.heads},
                                {"num_key_value_heads", config.kv_heads},
                                {"head_dim", config.head_dim},
                                {"hidden_size", config.channels},
                                {"intermediate_size", config.intermediate},
                                {"max_position_embeddings", config.positions},
                                {"vocab_size", config.vocabulary},
                                {"rms_norm_eps", config.norm_eps},
                                {"rope_theta", config.rope_theta},
                                {"rope_scaling", scaling},
                                {"attention_bias", false},
                                {"mlp_bias", false},
                                {"pad_token_id", padding},
                                {"tie_word_embeddings", config.tied_embeddings}};
  add_special_tokens(values, config.special_tokens);
  write_json(path, values);
}

}  // namespace lockstep::io
