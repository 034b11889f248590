#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/io/gpt2_config.hpp"
#include "lockstep/io/sharded_safetensors.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/nn/lora.hpp"
#include "models/load_file.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "transformer.";

/// Where the two files of a model lie.
struct Files {
  fs::path config, weights;
};

Files files_of(const fs::path& path) {
  if (is_file_of_model(path)) return {path.parent_path() / "config.json", path};
  return {path / "config.json", path / "model.safetensors"};
}

/// Linear layers of GPT-2 are `Conv1D` at Hugging Face: their weights are stored [in, out].
bool is_transposed(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

/// Masks that old files carry.
bool is_redundant(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

/// Our name for a tensor of a file. The output layer is the embedding: files hold it under either
/// name or both, and loading refuses two that differ. Some published files leave the prefix out.
std::string our_name(const std::string& name) {
  if (name == "lm_head.weight") return "transformer.wte.weight";
  return name.starts_with(prefix) ? name : std::string(prefix) + name;
}

Gpt2Options options_of(const io::Gpt2Config& config, TensorOptions tensor) {
  return {.layers = config.layers,
          .heads = config.heads,
          .channels = config.channels,
          .context = config.positions,
          .vocabulary = config.vocabulary,
          .norm_eps = config.layer_norm_epsilon,
          .special_tokens = config.special_tokens,
          .tensor = tensor};
}

io::Gpt2Config config_of(const Gpt2Options& options) {
  return {.layers = options.layers,
          .heads = options.heads,
          .channels = options.channels,
          .positions = options.context,
          .vocabulary = options.vocabulary,
          .layer_norm_epsilon = options.norm_eps,
          .special_tokens = options.special_tokens,
          .dropout = options.dropout,
          .attention_dropout = options.attention_dropout};
}

/// All tensors of the files under our names and in our layout.
NamedTensors state_from(const io::ShardedSafetensors& file, DType dtype) {
  NamedTensors state;
  for (const std::string& name : file.names()) {
    if (is_redundant(name)) continue;
    Tensor value = file.tensor(name).to(dtype);
    if (is_transposed(name) && value.dim() == 2) value = value.transpose(0, 1);
    state.emplace_back(our_name(name), value);
  }
  return state;
}

/// Refuses a configuration of another model's size before memory is taken for it.
void check_size(const io::Gpt2Config& config, double held, const fs::path& path) {
  const auto channels = static_cast<double>(config.channels);
  const double promised = static_cast<double>(config.vocabulary + config.positions) * channels +
                          12 * channels * channels * static_cast<double>(config.layers);
  LOCKSTEP_CHECK(promised <= 2 * held, InvalidArgument, path.string(),
                 ": config.json describes a GPT-2 of ", promised,
                 " parameters, but the files hold ", held, "; do they belong together?");
}

}  // namespace

nn::ModulePtr<Gpt2> load_hugging_face(const fs::path& path, TensorOptions tensor) {
  const NoGradGuard no_recording;
  const Files files = files_of(path);
  const io::Gpt2Config config = io::read_gpt2_config(files.config);
  const auto weights = is_file_of_model(path) ? io::ShardedSafetensors::open_file(path)
                                              : io::ShardedSafetensors::open(path);
  check_size(config, weights.element_count(), path);
  auto model = without_initial_values([&] { return gpt2(options_of(config, tensor)); });
  load_state_of_file(*model, state_from(weights, tensor.dtype),
                     fs::exists(files.weights) ? files.weights : path);
  return model;
}

void save_hugging_face(const Gpt2& model, const fs::path& path) {
  const NoGradGuard no_recording;
  LOCKSTEP_CHECK(!nn::has_lora(model), InvalidArgument,
                 "save_hugging_face: the model has adapters; save the one without that loads its "
                 "merged_state_dict, or the adapters alone, lora_state_dict");
  const Files files = files_of(path);
  std::error_code ignored;  // what fails here fails again, by name, below
  if (const fs::path folder = files.weights.parent_path(); !folder.empty())
    fs::create_directories(folder, ignored);
  NamedTensors state = model.state_dict();
  for (auto& [name, value] : state)
    if (is_transposed(name)) value = value.transpose(0, 1);
  io::save_safetensors(files.weights, state, {{"format", "pt"}});
  io::write_gpt2_config(files.config, config_of(model.options()));
}

}  // namespace lockstep::models
