#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/io/gpt2_config.hpp"
#include "lockstep/io/safetensors.hpp"
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
  if (path.extension() == ".safetensors") return {path.parent_path() / "config.json", path};
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
          .special_tokens = options.special_tokens};
}

/// All tensors of a file under our names and in our layout.
NamedTensors state_from(const io::SafetensorsFile& file, DType dtype) {
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
void check_size(const io::Gpt2Config& config, const NamedTensors& state, const Files& files) {
  double held = 0;
  for (const auto& [name, value] : state) held += static_cast<double>(value.numel());
  const auto channels = static_cast<double>(config.channels);
  const double promised = static_cast<double>(config.vocabulary + config.positions) * channels +
                          12 * channels * channels * static_cast<double>(config.layers);
  LOCKSTEP_CHECK(promised <= 2 * held, InvalidArgument, files.config.string(),
                 " describes a GPT-2 of ", promised, " parameters, but ", files.weights.string(),
                 " holds ", held, "; do they belong together?");
}

}  // namespace

nn::ModulePtr<Gpt2> load_hugging_face(const fs::path& path, TensorOptions tensor) {
  const NoGradGuard no_recording;
  const Files files = files_of(path);
  const io::Gpt2Config config = io::read_gpt2_config(files.config);
  const auto file = io::SafetensorsFile::open(files.weights);
  const NamedTensors state = state_from(file, tensor.dtype);
  check_size(config, state, files);
  auto model = gpt2(options_of(config, tensor));
  load_state_of_file(*model, state, files.weights);
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
