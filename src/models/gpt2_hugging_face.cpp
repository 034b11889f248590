#include <fstream>

#include <nlohmann/json.hpp>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/models/gpt2.hpp"

namespace lockstep::models {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view prefix = "transformer.";

/// Where the two files of a model lie.
struct Files {
  fs::path config, weights;
};

Files files_of(const fs::path& path) {
  if (path.extension() == ".safetensors") return {path.parent_path() / "config.json", path};
  return {path / "config.json", path / "model.safetensors"};
}

/// Linear layers of GPT-2 are `Conv1D` at Hugging Face: their weights are stored [in, out].
bool is_transposed(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

/// Masks that old files carry, and the output layer where it is a copy of the embedding.
bool is_redundant(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name == "lm_head.weight";
}

json read_json(const fs::path& path) {
  std::ifstream in(path);
  LOCKSTEP_CHECK(in, InvalidArgument, path,
                 " cannot be read; a Hugging Face model has config.json "
                 "and model.safetensors in one folder");
  json value = json::parse(in, nullptr, false);
  LOCKSTEP_CHECK(value.is_object(), CorruptData, path, " holds no JSON object");
  return value;
}

template <class T>
T setting(const json& config, const char* key, T fallback) {
  const auto place = config.find(key);
  if (place == config.end() || place->is_null()) return fallback;
  try {
    return place->get<T>();
  } catch (const json::exception&) {
    LOCKSTEP_THROW(CorruptData, "config.json: \"", key, "\" is ", place->dump(),
                   ", which is of the wrong type");
  }
}

/// @throws Unsupported unless the setting has the one value that our GPT-2 computes.
template <class T>
void require(const json& config, const char* key, T only) {
  const T value = setting(config, key, only);
  LOCKSTEP_CHECK(value == only, Unsupported, "config.json: \"", key, "\" is ", json(value).dump(),
                 "; only ", json(only).dump(), " is supported");
}

Gpt2Options options_from(const json& config) {
  const Gpt2Options defaults;
  require<std::string>(config, "model_type", "gpt2");
  require<std::string>(config, "activation_function", "gelu_new");
  require(config, "tie_word_embeddings", true);
  require(config, "scale_attn_weights", true);
  require(config, "scale_attn_by_inverse_layer_idx", false);
  require(config, "add_cross_attention", false);
  Gpt2Options options{.layers = setting(config, "n_layer", defaults.layers),
                      .heads = setting(config, "n_head", defaults.heads),
                      .channels = setting(config, "n_embd", defaults.channels),
                      .context = setting(config, "n_positions", defaults.context),
                      .vocabulary = setting(config, "vocab_size", defaults.vocabulary),
                      .dropout = setting(config, "resid_pdrop", 0.1),
                      .norm_eps = setting(config, "layer_norm_epsilon", defaults.norm_eps)};
  require(config, "n_inner", 4 * options.channels);
  return options;
}

json config_of(const Gpt2Options& options, DType dtype) {
  const std::string name(dtype == DType::f64    ? "float64"
                         : dtype == DType::bf16 ? "bfloat16"
                         : dtype == DType::f16  ? "float16"
                                                : "float32");
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_layer", options.layers},
          {"n_head", options.heads},
          {"n_embd", options.channels},
          {"n_inner", nullptr},
          {"n_positions", options.context},
          {"n_ctx", options.context},
          {"vocab_size", options.vocabulary},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", options.norm_eps},
          {"initializer_range", 0.02},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", options.dropout},
          {"resid_pdrop", options.dropout},
          {"tie_word_embeddings", true},
          {"torch_dtype", name}};
}

/// All tensors of a file under our names and in our layout.
NamedTensors state_from(const io::SafetensorsFile& file, DType dtype) {
  NamedTensors state;
  for (const std::string& name : file.names()) {
    if (is_redundant(name)) continue;
    // Some published files leave the prefix out.
    const std::string ours = name.starts_with(prefix) ? name : std::string(prefix) + name;
    Tensor value = file.tensor(name).to(dtype);
    if (is_transposed(name) && value.dim() == 2) value = value.transpose(0, 1);
    state.emplace_back(ours, value);
  }
  return state;
}

void write_text(const fs::path& path, std::string_view text) {
  io::AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

nn::ModulePtr<Gpt2> load_hugging_face(const fs::path& path, TensorOptions tensor) {
  const NoGradGuard no_recording;
  const Files files = files_of(path);
  Gpt2Options options = options_from(read_json(files.config));
  options.tensor = tensor;
  const auto file = io::SafetensorsFile::open(files.weights);
  auto model = gpt2(options);
  model->load_state_dict(state_from(file, tensor.dtype));
  return model;
}

void save_hugging_face(const Gpt2& model, const fs::path& path) {
  const NoGradGuard no_recording;
  const Files files = files_of(path);
  std::error_code ignored;
  if (const fs::path folder = files.weights.parent_path(); !folder.empty())
    fs::create_directories(folder, ignored);  // what fails here fails again, by name, below
  NamedTensors state = model.state_dict();
  for (auto& [name, value] : state)
    if (is_transposed(name)) value = value.transpose(0, 1);
  io::save_safetensors(files.weights, state, {{"format", "pt"}});
  const DType dtype = model.transformer->wte->weight.dtype();
  write_text(files.config, config_of(model.options(), dtype).dump(2) + '\n');
}

}  // namespace lockstep::models
