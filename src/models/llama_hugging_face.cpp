#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/io/sharded_safetensors.hpp"
#include "lockstep/models/llama.hpp"
#include "lockstep/nn/lora.hpp"
#include "models/load_file.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view output_name = "lm_head.weight";
constexpr std::string_view embedding_name = "model.embed_tokens.weight";

LlamaOptions options_of(const io::LlamaConfig& config, TensorOptions tensor) {
  return {.layers = config.layers,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .channels = config.channels,
          .intermediate = config.intermediate,
          .context = config.positions,
          .vocabulary = config.vocabulary,
          .rope_theta = config.rope_theta,
          .rope_scaling = config.rope_scaling,
          .norm_eps = config.norm_eps,
          .tied_embeddings = config.tied_embeddings,
          .padding_index = config.padding_index,
          .special_tokens = config.special_tokens,
          .tensor = tensor};
}

io::LlamaConfig config_of(const LlamaOptions& options) {
  return {.layers = options.layers,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .head_dim = options.head_dim,
          .channels = options.channels,
          .intermediate = options.intermediate,
          .positions = options.context,
          .vocabulary = options.vocabulary,
          .rope_theta = options.rope_theta,
          .rope_scaling = options.rope_scaling,
          .norm_eps = options.norm_eps,
          .tied_embeddings = options.tied_embeddings,
          .padding_index = options.padding_index,
          .special_tokens = options.special_tokens};
}

/// All tensors under our names. Old files carry the rotary frequencies, and some with tied
/// embeddings the output layer: loading refuses one that differs from the embedding.
NamedTensors state_from(const io::ShardedSafetensors& files, bool is_tied, DType dtype) {
  NamedTensors state;
  for (const std::string& name : files.names()) {
    if (name.ends_with(".rotary_emb.inv_freq")) continue;
    const bool is_embedding = is_tied && name == output_name;
    state.emplace_back(is_embedding ? std::string(embedding_name) : name,
                       files.tensor(name).to(dtype));
  }
  return state;
}

/// Refuses a configuration of another model's size before memory is taken for it.
void check_size(const io::LlamaConfig& config, double held, const fs::path& path) {
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const double attention =
      2 * number(config.head_dim) * (number(config.heads) + number(config.kv_heads));
  const double promised = number(config.channels) *
                          (number(config.vocabulary) * (config.tied_embeddings ? 1 : 2) +
                           number(config.layers) * (attention + 3 * number(config.intermediate)));
  LOCKSTEP_CHECK(promised <= 2 * held, InvalidArgument, path.string(),
                 ": config.json describes a Llama of ", promised,
                 " parameters, but the files hold ", held, "; do they belong together?");
}

}  // namespace

nn::ModulePtr<Llama> load_hugging_face_llama(const fs::path& path, TensorOptions tensor) {
  const NoGradGuard no_recording;
  const bool is_file = is_file_of_model(path);
  const io::LlamaConfig config =
      io::read_llama_config((is_file ? path.parent_path() : path) / "config.json");
  const auto files =
      is_file ? io::ShardedSafetensors::open_file(path) : io::ShardedSafetensors::open(path);
  check_size(config, files.element_count(), path);
  auto model = without_initial_values([&] { return llama(options_of(config, tensor)); });
  load_state_of_file(*model, state_from(files, config.tied_embeddings, tensor.dtype), path);
  return model;
}

void save_hugging_face(const Llama& model, const fs::path& folder, std::uint64_t shard_bytes) {
  const NoGradGuard no_recording;
  const LlamaOptions& options = model.options();
  LOCKSTEP_CHECK(!nn::has_lora(model), InvalidArgument,
                 "save_hugging_face: the model has adapters; save the one without that loads its "
                 "merged_state_dict, or the adapters alone, lora_state_dict");
  LOCKSTEP_CHECK(options.channels % options.heads == 0, InvalidArgument,
                 "save_hugging_face: ", options.heads, " heads do not divide ", options.channels,
                 " channels, as transformers asks; save the state_dict with save_safetensors");
  std::error_code ignored;  // what fails here fails again, by name, below
  fs::create_directories(folder, ignored);
  io::save_sharded_safetensors(folder, model.state_dict(), shard_bytes, {{"format", "pt"}});
  io::write_llama_config(folder / "config.json", config_of(options));
}

}  // namespace lockstep::models
