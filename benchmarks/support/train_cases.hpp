#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/models/simple.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/step_graph.hpp"

/// @file
/// The training steps that are measured: models, batches and optimizers of fixed sizes.

namespace lockstep::benchmark {

/// One training step, ready to run: forward, loss, backward, optimizer, gradients cleared.
struct TrainCase {
  std::function<double()> step;  ///< returns the loss
  NamedTensors state;            ///< weights and batch before the first step, for a peer
  double gflop = 0;  ///< floating-point work of a step, matrix products and convolutions only
};

/// Whole numbers below `limit`, i64.
inline Tensor random_integers(const Shape& shape, std::int64_t limit) {
  return affine(rand(shape), static_cast<double>(limit), 0.0).to(DType::i64);
}

/// A GPT-2, and a batch for it.
struct GptSizes {
  std::int64_t layers, heads, channels, context, vocabulary, batch, time;
};
inline constexpr GptSizes small_gpt{4, 4, 256, 256, 4096, 8, 256};
inline constexpr GptSizes gpt2_124m{12, 12, 768, 1024, 50304, 4, 64};

/// @param dtype of the parameters. @param autocast forward under autocast to bf16.
/// @param device of the model and its batch.
inline TrainCase gpt_case(const GptSizes& sizes, DType dtype, bool autocast = false,
                          Device device = cpu) {
  const auto [layers, heads, channels, context, vocabulary, batch, time] = sizes;
  const auto model = models::gpt2({.layers = layers,
                                   .heads = heads,
                                   .channels = channels,
                                   .context = context,
                                   .vocabulary = vocabulary});
  const Tensor tokens = random_integers({batch, time + 1}, vocabulary);
  TrainCase result;
  for (const auto& [name, tensor] : model->state_dict())
    result.state.emplace_back(name, tensor.clone());
  result.state.emplace_back("tokens", tokens);
  model->to(dtype);
  model->to(device);
  const auto optimizer =
      std::make_shared<optim::AdamW>(model->parameters(), optim::AdamWOptions{.lr = 1e-4});
  const Tensor inputs = tokens.slice(1, 0, time).contiguous().to(device);
  const Tensor targets = tokens.slice(1, 1, time + 1).reshape({-1}).to(device);
  result.step = [=, classes = vocabulary] {
    const Tensor loss = [&] {
      const amp::Autocast mixed(DType::bf16, {.enabled = autocast});
      return cross_entropy(model(inputs).reshape({-1, classes}), targets);
    }();
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss.item();
  };
  const auto rows = static_cast<double>(batch * time);
  const auto weights =
      static_cast<double>(layers * 12 * channels * channels + vocabulary * channels);
  // Causal: half of q k^T and p v.
  const auto attention = static_cast<double>(layers * 2 * time * channels);
  result.gflop = 6e-9 * rows * (weights + attention / 2);
  return result;
}

/// An MLP 64-64-64-10 on 32 rows: what a step costs beside its arithmetic.
/// @param capture the step is replayed by a StepGraph.
inline TrainCase tiny_case(bool capture, Device device = cpu) {
  const auto model = models::mlp({.in = 64, .hidden = {64, 64}, .out = 10});
  model->to(device);
  const Tensor x = randn({32, 64}).to(device), targets = random_integers({32}, 10).to(device);
  TrainCase result;
  for (const auto& [name, tensor] : model->state_dict())
    result.state.emplace_back(name, tensor.clone());
  result.state.emplace_back("x", x);
  result.state.emplace_back("targets", targets);
  const auto optimizer =
      std::make_shared<optim::AdamW>(model->parameters(), optim::AdamWOptions{.lr = 1e-3});
  const StepGraph::Step step = [=](std::span<const Tensor> in) {
    const Tensor loss = cross_entropy(model(in[0]), in[1]);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return std::vector{loss};
  };
  const auto graph = std::make_shared<StepGraph>(step);
  result.step = [=] {
    return capture ? (*graph)({x, targets})[0].item() : step(std::array{x, targets})[0].item();
  };
  result.gflop = 6e-9 * 32 * (64 * 64 * 2 + 64 * 10);
  return result;
}

/// A residual network on 16 images of 128 x 128, channels-last, with SGD and momentum.
/// @param forward_gflop multiplications and additions of the forward, for one image.
inline TrainCase resnet_case(const nn::ModulePtr<models::ResNet>& model, DType dtype,
                             double forward_gflop, Device device = cpu) {
  constexpr std::int64_t batch = 16;
  const Tensor x = randn({batch, 3, 128, 128});
  const Tensor targets = random_integers({batch}, 1000).to(device);
  TrainCase result;
  for (const auto& [name, tensor] : model->state_dict())
    result.state.emplace_back(name, tensor.clone());
  result.state.emplace_back("x", x);
  result.state.emplace_back("targets", targets);
  model->to(dtype);
  model->to(device);
  const auto optimizer = std::make_shared<optim::SGD>(
      model->parameters(), optim::SGDOptions{.lr = 1e-3, .momentum = 0.9});
  const Tensor images = x.to(dtype).to(device).channels_last();
  result.step = [=] {
    const Tensor loss = cross_entropy(model(images), targets);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss.item();
  };
  result.gflop = 3 * batch * forward_gflop;
  return result;
}

/// The case of a name, on a device. @throws InvalidArgument for one that is not among them.
inline TrainCase train_case(const std::string& name, Device device = cpu) {
  const DType dtype = name.ends_with("_bf16")  ? DType::bf16
                      : name.ends_with("_f16") ? DType::f16
                                               : DType::f32;
  const std::string model = name.substr(0, name.rfind('_'));
  manual_seed(1);
  const bool is_mixed = name.ends_with("_amp");
  if (model == "gpt") return gpt_case(small_gpt, dtype, is_mixed, device);
  if (model == "gpt2") return gpt_case(gpt2_124m, dtype, is_mixed, device);
  if (model == "resnet18") return resnet_case(models::resnet18(), dtype, 1.19, device);
  if (model == "resnet50") return resnet_case(models::resnet50(), dtype, 2.69, device);
  if (name == "tiny_f32") return tiny_case(false, device);
  if (name == "tiny_captured_f32") return tiny_case(true, device);
  LOCKSTEP_THROW(InvalidArgument, "no training case '", name,
                 "'; there are gpt and gpt2 with _f32, _bf16, _f16 or _amp, "
                 "resnet18 and resnet50 with _f32, _bf16 or _f16, tiny_f32 and tiny_captured_f32");
}

}  // namespace lockstep::benchmark
