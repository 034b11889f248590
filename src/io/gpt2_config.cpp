#include "lockstep/io/gpt2_config.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/mapped_file.hpp"

namespace lockstep::io {
namespace {

using nlohmann::json;

// Far more than any configuration needs: it keeps a wrong file from being read whole.
constexpr std::size_t max_config_bytes = std::size_t{1} << 20;

// A configuration with its file's name, which all messages start with.
struct ConfigFile {
  std::string name;
  json values;

  std::int64_t size(const char* key) const {
    const auto found = values.find(key);
    LOCKSTEP_CHECK(
        found != values.end() && found->is_number_integer() && *found > 0 && *found <= INT32_MAX,
        CorruptData, name, ": '", key, "' is ",
        found == values.end() ? "missing" : found->dump().substr(0, 40),
        "; a whole number from 1 to 2147483647 belongs there");
    return found->get<std::int64_t>();
  }
  // Refuses a value that is present and none of `allowed`.
  void require(const char* key, std::initializer_list<json> allowed) const {
    const auto found = values.find(key);
    if (found == values.end() || std::ranges::find(allowed, *found) != allowed.end()) return;
    LOCKSTEP_THROW(Unsupported, name, ": '", key, "' is ", found->dump().substr(0, 40),
                   "; lockstep's GPT-2 has ", allowed.begin()->dump());
  }
};

ConfigFile read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  LOCKSTEP_CHECK(file.bytes().size() <= max_config_bytes, CorruptData, path.string(), ": ",
                 file.bytes().size(), " bytes are too many for a configuration; at most ",
                 max_config_bytes, " are read");
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  try {
    ConfigFile config{path.string(), json::parse(text)};
    LOCKSTEP_CHECK(config.values.is_object(), CorruptData, config.name,
                   ": an object of settings belongs there");
    return config;
  } catch (const json::exception& error) {
    LOCKSTEP_THROW(CorruptData, path.string(), ": broken JSON: ", error.what());
  }
}

double read_epsilon(const ConfigFile& config) {
  const auto found = config.values.find("layer_norm_epsilon");
  if (found == config.values.end()) return Gpt2Config().layer_norm_epsilon;
  LOCKSTEP_CHECK(found->is_number() && *found > 0.0 && *found < 1.0, CorruptData, config.name,
                 ": 'layer_norm_epsilon' is ", found->dump().substr(0, 40),
                 "; a number between 0 and 1 belongs there");
  return found->get<double>();
}

}  // namespace

Gpt2Config read_gpt2_config(const std::filesystem::path& path) {
  const ConfigFile file = read_json(path);
  file.require("model_type", {"gpt2"});
  const Gpt2Config config{file.size("n_layer"),     file.size("n_head"),     file.size("n_embd"),
                          file.size("n_positions"), file.size("vocab_size"), read_epsilon(file)};
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
  const nlohmann::ordered_json values{{"architectures", {"GPT2LMHeadModel"}},
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
                                      {"attn_pdrop", 0.0},
                                      {"embd_pdrop", 0.0},
                                      {"resid_pdrop", 0.0}};
  AtomicFile file(path);
  file.write(values.dump(2) + "\n");
  file.commit();
}

}  // namespace lockstep::io
