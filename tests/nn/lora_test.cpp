#include "lockstep/nn/lora.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/models/llama.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/names_of.hpp"
#include "support/refusal.hpp"
#include "support/temporary_folder.hpp"

// Low-rank adapters in models that exist, and the hooks that put them there.

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names_of;
using testing::refusal;
using testing::TemporaryFolder;

struct Perceptron : nn::Module {
  Tensor forward(const Tensor& x) const { return second(relu(first(x))); }
  nn::Child<nn::Linear> first{this, "first", 6, 5};
  nn::Child<nn::Linear> second{this, "second", 5, 4};
};

models::LlamaOptions small_llama() {
  return {.layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .channels = 32,
          .intermediate = 48,
          .context = 16,
          .vocabulary = 40};
}

/// Moves what trains, so that adapters give something.
void stir(nn::Module& model) {
  const NoGradGuard no_recording;
  for (Tensor& parameter : model.parameters())
    if (parameter.requires_grad())
      parameter.add_(randn(parameter.shape()).to(parameter.dtype()), 0.1);
}

TEST(Lora, LeavesWhatAModelGivesAndTrainsTheAdaptersAlone) {
  const auto model = nn::make<Perceptron>();
  const Tensor x = randn({3, 6}), before = model(x);
  EXPECT_EQ(nn::add_lora(*model, {.targets = {"first", "second"}, .rank = 2}), 2);
  EXPECT_TRUE(equal(model(x), before));
  sum(model(x)).backward();
  EXPECT_FALSE(model->first->weight.requires_grad());
  EXPECT_FALSE(model->first->bias.grad().defined());
  EXPECT_THAT(names_of(nn::lora_state_dict(*model)),
              ElementsAre("first.lora_A.weight", "first.lora_B.weight", "second.lora_A.weight",
                          "second.lora_B.weight"));
  for (const auto& [name, parameter] : model->named_parameters())
    EXPECT_EQ(parameter.requires_grad(), name.find("lora_") != std::string::npos) << name;
}

TEST(Lora, AddsAScaledProductOfTwoThinLayers) {
  const auto layer = nn::make<Perceptron>();
  nn::add_lora(*layer, {.targets = {"second"}, .rank = 3, .alpha = 12});
  stir(*layer);
  const NamedTensors adapter = nn::lora_state_dict(*layer);
  ASSERT_EQ(adapter.size(), 2u);
  EXPECT_EQ(adapter[0].second.shape(), Shape({3, 5}));
  EXPECT_EQ(adapter[1].second.shape(), Shape({4, 3}));
  const Tensor x = randn({2, 6}), hidden = relu(layer->first(x));
  const Tensor share = linear(linear(hidden, adapter[0].second), adapter[1].second);
  const Tensor expected = linear(hidden, layer->second->weight, layer->second->bias) + share * 4.0;
  EXPECT_TRUE(allclose(layer(x), expected, 1e-5, 1e-6));
}

TEST(Lora, MergesIntoAModelWithoutAdapters) {
  const auto model = models::llama(small_llama());
  const std::int64_t adapted = nn::add_lora(
      *model, {.targets = {"self_attn.q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"}});
  EXPECT_EQ(adapted, 10);
  stir(*model);
  model->eval();
  const auto merged = models::llama(small_llama());
  merged->eval();
  const Tensor tokens = randint(0, 40, {2, 9});
  EXPECT_FALSE(allclose(merged(tokens), model(tokens), 1e-3, 1e-3));
  merged->load_state_dict(nn::merged_state_dict(*model));
  EXPECT_TRUE(allclose(merged(tokens), model(tokens), 1e-4, 1e-5));
  const Tensor loss = model(tokens, tokens);
  EXPECT_NEAR(loss.item<float>(), merged(tokens, tokens).item<float>(), 1e-4);
}

TEST(Lora, LoadsAdaptersIntoAnotherModelOfTheSameWeights) {
  const auto trained = nn::make<Perceptron>(), other = nn::make<Perceptron>();
  other->load_state_dict(trained->state_dict());
  for (const auto& model : {trained, other}) nn::add_lora(*model, {.targets = {"first"}});
  stir(*trained);
  const auto report = other->load_state_dict(nn::lora_state_dict(*trained), false);
  EXPECT_TRUE(report.unexpected.empty());
  const Tensor x = randn({2, 6});
  EXPECT_TRUE(equal(trained(x), other(x)));
}

TEST(Lora, KeepsAdaptersOfSixteenBitLayersInF32) {
  const auto model = nn::make<Perceptron>();
  model->to(DType::bf16);
  nn::add_lora(*model, {.targets = {"first"}});
  stir(*model);
  EXPECT_EQ(nn::lora_state_dict(*model)[0].second.dtype(), DType::f32);
  const Tensor x = randn({2, 6}).to(DType::bf16);
  EXPECT_EQ(model(x).dtype(), DType::bf16);
  const auto merged = nn::make<Perceptron>();
  merged->to(DType::bf16);
  merged->load_state_dict(nn::merged_state_dict(*model));
  EXPECT_TRUE(allclose(merged(x).to(DType::f32), model(x).to(DType::f32), 0.05, 0.05));
}

TEST(Lora, GivesASharedLayerOneAdapter) {
  struct Twice : nn::Module {
    Tensor forward(const Tensor& x) const { return again(layer(x)); }
    nn::Child<nn::Linear> layer{this, "layer", 3, 3};
    nn::Child<nn::Linear> again{this, "again", layer.handle()};
  };
  const auto model = nn::make<Twice>();
  EXPECT_EQ(nn::add_lora(*model, {.targets = {"layer", "again"}}), 1);
  stir(*model);
  const auto merged = nn::make<Twice>();
  merged->load_state_dict(nn::merged_state_dict(*model));
  const Tensor x = randn({2, 3});
  EXPECT_TRUE(allclose(merged(x), model(x), 1e-5, 1e-6));
}

TEST(Lora, RefusesToMergeIntoATiedWeight) {
  struct Tied : nn::Module {
    Tensor forward(const Tensor& tokens) const { return output(embedding(tokens)); }
    nn::Child<nn::Embedding> embedding{this, "embedding", 7, 3};
    nn::Child<nn::Linear> output{this, "output", 3, 7};
    nn::Parameter tied{this, "tied", output->weight};
  };
  const auto model = nn::make<Tied>();
  nn::add_lora(*model, {.targets = {"output"}});
  EXPECT_THAT(refusal([&] { return nn::merged_state_dict(*model); }), HasSubstr("tied"));
}

TEST(Lora, KeepsTrainingWhatHasAnAdapterAlready) {
  const auto model = nn::make<Perceptron>();
  nn::add_lora(*model, {.targets = {"first"}});
  EXPECT_TRUE(nn::has_lora(*model));
  EXPECT_THAT(refusal([&] { return nn::add_lora(*model, {.targets = {"lora_A"}}); }),
              HasSubstr("they end in: first, second"));
  nn::add_lora(*model, {.targets = {"second"}, .rank = 2});
  for (const auto& [name, parameter] : model->named_parameters())
    EXPECT_EQ(parameter.requires_grad(), name.find("lora_") != std::string::npos) << name;
}

TEST(Lora, IsNotSavedInSilenceForWhoDoesNotKnowIt) {
  const TemporaryFolder folder;
  const auto model = models::llama(small_llama());
  EXPECT_FALSE(nn::has_lora(*model));
  nn::add_lora(*model, {.targets = {"q_proj"}});
  EXPECT_THAT(refusal([&] { return models::save_hugging_face(*model, folder / "model"), 0; }),
              HasSubstr("the model has adapters"));
  EXPECT_FALSE(std::filesystem::exists(folder / "model"));
}

TEST(Lora, SaysWhatItCannotDoAndChangesNothing) {
  const auto model = nn::make<Perceptron>();
  const auto refused = [&](const nn::LoraOptions& options, const std::string& why) {
    EXPECT_THAT(refusal([&] { return nn::add_lora(*model, options); }), HasSubstr(why));
    EXPECT_EQ(model->named_parameters().size(), 4u);
    EXPECT_TRUE(model->first->weight.requires_grad());
  };
  refused({}, "first, second");
  refused({.targets = {"first", "q_proj"}}, "\"q_proj\"; they end in: first, second");
  refused({.targets = {"irst"}}, "\"irst\"");
  refused({.targets = {"first"}, .alpha = NAN}, "alpha nan");
  refused({.targets = {"first"}, .rank = 0}, "rank 0");
  refused({.targets = {"first"}, .dropout = 2}, "dropout 2");
  nn::add_lora(*model, {.targets = {"first"}});
  EXPECT_THAT(refusal([&] { return nn::add_lora(*model, {.targets = {"first"}}); }),
              HasSubstr("first has an adapter already"));
}

TEST(Lora, TrainsOnRanksAndIsRefusedBehindAWrapper) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    manual_seed(2);
    const auto model = nn::make<Perceptron>();
    nn::add_lora(*model, {.targets = {"first"}});
    DistributedDataParallel<Perceptron> ddp(model, CommunicatorPtr(&group));
    manual_seed(3 + static_cast<std::uint64_t>(group.rank()));
    ddp(randn({2, 6})).square().mean().backward();
    const Tensor sum = model->first->children()[1].second->parameters()[0].grad().abs().sum();
    EXPECT_GT(sum.item<float>(), 0.0F);
    EXPECT_THAT(refusal([&] { return nn::add_lora(*model, {.targets = {"second"}}); }),
                HasSubstr("is wrapped for data-parallel training; add adapters before"));
  });
}

TEST(Lora, IsRecomputedWithItsDropout) {
  const auto model = nn::make<Perceptron>();
  nn::add_lora(*model, {.targets = {"first"}, .dropout = 0.5});
  stir(*model);
  const Tensor x = randn({4, 6});
  const auto gradient = [&](bool recompute) {
    manual_seed(3);
    model->zero_grad();
    const Tensor y =
        recompute ? nn::checkpoint([&](const Tensor& t) { return model(t); }, x) : model(x);
    sum(y * y).backward();
    for (const auto& [name, parameter] : model->named_parameters())
      if (name == "first.lora_A.weight") return parameter.grad().clone();
    return Tensor();
  };
  EXPECT_TRUE(equal(gradient(true), gradient(false)));
}

TEST(CallHooks, ReplaceWhatACallGives) {
  const auto layer = nn::make<nn::Linear>(2, 2);
  const Tensor x = ones({1, 2}), plain = layer(x);
  std::vector<float> seen;
  const auto after = [&](nn::Module&, std::span<const Tensor> results) {
    seen.push_back((results[0] - plain).sum().item<float>());
  };
  const auto id = layer->add_call_hooks({.after = after});
  layer->add_call_hooks(
      {.after = after, .replace = [](auto&, auto arguments, const Tensor& result) {
         return result + arguments[0];
       }});
  EXPECT_TRUE(layer->has_call_hooks());
  EXPECT_TRUE(equal(layer(x), plain + x));
  EXPECT_THAT(seen, ElementsAre(2.0F, 2.0F));
  layer->remove_call_hooks(id);
}

TEST(CallHooks, ReplaceSingleTensorsAlone) {
  struct Pairs : nn::Module {
    std::pair<Tensor, Tensor> forward(const Tensor& x) const { return {x, x}; }
  };
  const auto model = nn::make<Pairs>();
  model->add_call_hooks({.replace = [](auto&, auto, const Tensor& result) { return result; }});
  EXPECT_THAT(refusal([&] { return model(ones({1})); }), HasSubstr("does not give one Tensor"));
}

}  // namespace
}  // namespace lockstep
