// Steps of whole models at the sizes that people train, on this machine's devices: milliseconds a
// step, or, on a simulated GPU, a profile of them (docs/simulated-gpu.md):
//
//     LOCKSTEP_SIM_PROFILE=gpt2.jsonl LOCKSTEP_SIM_EXECUTE=sample LOCKSTEP_SIM_MEMORY=80g
//         benchmark_model_step --model gpt2 --batch 64 --steps 3
//
// --small: smaller models of the same kinds, which the simulated GPU trains.
// --plain: of one rank, without DistributedDataParallel, for what that costs.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/lockstep.hpp>
#include <nlohmann/json.hpp>

namespace ls = lockstep;

using namespace std::string_view_literals;

namespace {

struct Options {
  std::string model = "gpt2";
  std::int64_t batch = 8, context = 1024, steps = 3;
  std::optional<std::int64_t> layers;  ///< of the Llama or the vision transformer, else all
  bool capture = false, is_small = false, is_plain = false;
  bool is_bf16 =
      false;  ///< parameters in bf16, f32 masters of them in the optimizer; else autocast
};

constexpr const char* usage =
    "benchmark_model_step [--model gpt2|llama|resnet50|vit] [--batch N] [--context N] "
    "[--layers N] [--steps N] "
    "[--dtype autocast|bf16] [--capture] [--device auto|cpu|cuda] [--small] [--plain]\n";

/// Nothing where the words mean nothing.
std::optional<Options> parse(std::span<char*> words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view name = words[i];
    if (name == "--capture") {
      options.capture = true;
      continue;
    }
    if (name == "--small") {
      options.is_small = true;
      continue;
    }
    if (name == "--plain") {
      options.is_plain = true;
      continue;
    }
    if (++i == words.size()) return std::nullopt;
    if (name == "--model")
      options.model = words[i];
    else if (name == "--batch")
      options.batch = std::atoll(words[i]);
    else if (name == "--context")
      options.context = std::atoll(words[i]);
    else if (name == "--layers")
      options.layers = std::atoll(words[i]);
    else if (name == "--steps")
      options.steps = std::atoll(words[i]);
    else if (name == "--device")
      continue;  // the session's
    else if (name == "--dtype" && (words[i] == "autocast"sv || words[i] == "bf16"sv))
      options.is_bf16 = words[i] == "bf16"sv;
    else
      return std::nullopt;
  }
  const bool is_whole =
      std::min({options.batch, options.context, options.layers.value_or(1), options.steps}) > 0;
  const bool fits = is_whole && !(options.is_plain && options.capture);
  return fits ? std::optional(options) : std::nullopt;
}

ls::Tensor whole_numbers(const ls::Shape& shape, std::int64_t limit, ls::Device device) {
  return ls::affine(ls::rand(shape), static_cast<double>(limit), 0.0).to(ls::DType::i64).to(device);
}

/// Parameters and gradients in bf16 need no autocast.
ls::TensorOptions parameters(const Options& options) {
  return {.dtype = options.is_bf16 ? ls::DType::bf16 : ls::DType::f32};
}

std::optional<ls::DType> autocast(const Options& options) {
  return options.is_bf16 ? std::nullopt : std::optional(ls::DType::bf16);
}

void measure(const ls::Session& session, const Options& options,
             const std::function<ls::Tensor()>& step) {
  for (std::int64_t i = 0; i < options.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = step().item();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (session.is_main())
      std::cout << nlohmann::ordered_json{{"model", options.model},
                                          {"batch", options.batch},
                                          {"dtype", options.is_bf16 ? "bf16" : "autocast"},
                                          {"ranks", session.size()},
                                          {"step", i},
                                          {"device", session.device().is_cpu() ? "cpu" : "cuda"},
                                          {"plain", options.is_plain},
                                          {"ms", time.count()},
                                          {"loss", loss}}
                       .dump()
                << std::endl;
  }
}

/// Steps of a model that is not wrapped; `forward` gives the loss.
void measure_plain(const ls::Session& session, const Options& options,
                   ls::optim::Optimizer& optimizer, std::optional<double> max_norm,
                   const std::function<ls::Tensor()>& forward) {
  measure(session, options, [&] {
    const ls::TraceRange range("step");
    ls::Tensor loss;
    {
      const ls::amp::Autocast scope(ls::DType::bf16, {.enabled = !options.is_bf16});
      loss = forward();
    }
    loss.backward();
    if (max_norm) ls::optim::clip_grad_norm_(optimizer.parameters(), *max_norm);
    optimizer.step();
    optimizer.zero_grad();
    return loss.detach();
  });
}

/// GPT-2 124M, or one of two layers that the simulated GPU trains at once.
ls::models::Gpt2Options gpt2_options(const Options& options) {
  if (!options.is_small) return {.context = options.context, .tensor = parameters(options)};
  return {.layers = 2,
          .heads = 2,
          .channels = 64,
          .context = std::min<std::int64_t>(options.context, 64),
          .vocabulary = 512,
          .tensor = parameters(options)};
}

/// Llama 3.2 1B, with fewer layers if wanted, or one of two layers that the simulated GPU trains at
/// once.
ls::models::LlamaOptions llama_options(const Options& options) {
  if (!options.is_small)
    return {.layers = options.layers.value_or(16),
            .context = options.context,
            .tensor = parameters(options)};
  return {.layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .channels = 64,
          .intermediate = 128,
          .context = std::min<std::int64_t>(options.context, 64),
          .vocabulary = 512,
          .tensor = parameters(options)};
}

/// A language model, AdamW, clipping, products in bf16.
template <class Model>
void language_model(ls::Session& session, const Options& options,
                    const typename Model::Options& config) {
  const auto model = ls::nn::make<Model>(config);
  model->to(session.device());
  const ls::Tensor tokens =
      whole_numbers({options.batch, config.context + 1}, config.vocabulary, session.device());
  const ls::Tensor inputs = tokens.slice(1, 0, config.context).contiguous();
  const ls::Tensor targets = tokens.slice(1, 1, config.context + 1).contiguous();
  const ls::optim::AdamWOptions rule{.lr = 6e-4, .weight_decay = 0.1};
  const double max_norm = 1.0;
  if (options.is_plain) {
    ls::optim::AdamW optimizer(model->named_parameters(), rule);
    return measure_plain(session, options, optimizer, max_norm,
                         [&] { return model->forward(inputs, targets); });
  }
  ls::DistributedDataParallel<Model> ddp(model, session.world());
  ls::optim::AdamW optimizer(ddp.named_parameters(), rule);
  ls::train::Step step(
      ddp, optimizer, [&](std::span<const ls::Tensor> in) { return ddp(in[0], in[1]); },
      {.autocast = autocast(options), .max_norm = max_norm, .capture = options.capture});
  measure(session, options, [&] { return step({inputs, targets}).loss; });
}

/// A classifier of images, channels-last, in bf16.
template <class Optimizer, class Model>
void classifier(ls::Session& session, const Options& options, const ls::nn::ModulePtr<Model>& model,
                std::int64_t side, const typename Optimizer::Options& rule) {
  model->to(session.device());
  const ls::Tensor images = ls::rand({options.batch, 3, side, side})
                                .to(parameters(options).dtype)
                                .to(session.device())
                                .channels_last();
  const ls::Tensor labels = whole_numbers({options.batch}, 1000, session.device());
  if (options.is_plain) {
    Optimizer optimizer(model->named_parameters(), rule);
    return measure_plain(session, options, optimizer, std::nullopt,
                         [&] { return ls::cross_entropy(model->forward(images), labels); });
  }
  ls::DistributedDataParallel<Model> ddp(model, session.world());
  Optimizer optimizer(ddp.named_parameters(), rule);
  ls::train::Step step(
      ddp, optimizer,
      [&](std::span<const ls::Tensor> in) { return ls::cross_entropy(ddp(in[0]), in[1]); },
      {.autocast = autocast(options), .capture = options.capture});
  measure(session, options, [&] { return step({images, labels}).loss; });
}

/// ResNet-50 on images of 224 x 224, SGD with momentum.
void resnet50(ls::Session& session, const Options& options) {
  const ls::models::ResNetOptions config{.tensor = parameters(options)};
  const auto model = options.is_small ? ls::models::resnet18(config) : ls::models::resnet50(config);
  classifier<ls::optim::SGD>(session, options, model, options.is_small ? 32 : 224,
                             {.lr = 0.1, .momentum = 0.9});
}

/// ViT-B/16 on images of 224 x 224, AdamW.
void vit(ls::Session& session, const Options& options) {
  ls::models::VisionTransformerOptions config{.tensor = parameters(options)};
  if (options.is_small) {
    config.image_size = 32;
    config.layers = config.heads = 2;
    config.hidden_dim = 64;
    config.mlp_dim = 128;
  }
  config.layers = options.layers.value_or(config.layers);
  classifier<ls::optim::AdamW>(session, options,
                               ls::nn::make<ls::models::VisionTransformer>(config),
                               config.image_size, {.lr = 1e-3, .weight_decay = 0.05});
}

int run(ls::Session& session, const Options& options) {
  ls::manual_seed(1);
  if (options.model == "gpt2")
    return language_model<ls::models::Gpt2>(session, options, gpt2_options(options)), 0;
  if (options.model == "llama")
    return language_model<ls::models::Llama>(session, options, llama_options(options)), 0;
  if (options.model == "resnet50") return resnet50(session, options), 0;
  if (options.model == "vit") return vit(session, options), 0;
  std::cerr << "no model '" << options.model << "'; there are gpt2, llama, resnet50 and vit\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options = parse(std::span(argv + 1, argv + argc));
  if (!options) {
    std::cerr << usage;
    return 2;
  }
  return ls::Session::run(argc, argv, [&](ls::Session& session) { return run(session, *options); });
}
