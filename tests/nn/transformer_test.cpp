#include "lockstep/nn/transformer.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"
#include "support/grad_check.hpp"
#include "support/names_of.hpp"
#include "support/place.hpp"

namespace lockstep {
namespace {

using testing::expect_close;
using testing::expect_gradients;
using testing::GoldenCase;

nn::TransformerLayerOptions layer_of(const GoldenCase& golden) {
  return {.features = golden.args.integer("d_model"),
          .heads = golden.args.integer("nhead"),
          .dim_feedforward = golden.args.integer("dim_feedforward"),
          .activation = golden.args.text("activation") == "gelu" ? nn::TransformerActivation::gelu
                                                                 : nn::TransformerActivation::relu,
          .layer_norm_eps = golden.args.number("layer_norm_eps", 1e-5),
          .norm_first = golden.args.flag("norm_first"),
          .bias = golden.args.flag("bias", true),
          .tensor = {DType::f64}};
}

/// The mask that a case names.
nn::AttentionMask mask_of(const GoldenCase& golden, const Tensor& x) {
  const std::vector<std::string> names = golden.args.texts("masks");
  const auto has = [&](const char* name) { return std::ranges::count(names, name) > 0; };
  nn::AttentionMask mask{.is_causal = has("causal")};
  if (has("padding")) {
    mask.attn_mask = zeros({2, 1, 1, x.size(1)}, {DType::boolean, x.device()});
    mask.attn_mask[1].select(-1, -1).fill_(1);
  }
  return mask;
}

Tensor run(const nn::ModulePtr<nn::TransformerEncoder>& encoder, const std::vector<Tensor>& in,
           const nn::AttentionMask& mask) {
  return encoder(in[0], mask);
}
Tensor run(const nn::ModulePtr<nn::TransformerDecoder>& decoder, const std::vector<Tensor>& in,
           const nn::AttentionMask& mask) {
  return decoder(in[0], in[1], mask);
}

/// Loads PyTorch's parameters by their names, and compares the output and all gradients.
template <class M>
void expect_golden_transformer(const GoldenCase& golden, Device device) {
  SCOPED_TRACE(golden.name);
  const auto count = static_cast<std::size_t>(golden.args.integer("count"));
  const std::vector<std::string> names = golden.args.texts("parameters");
  const bool norm = std::ranges::count(names, "norm.weight") > 0;
  const auto layers = std::ranges::count_if(
      names, [](const std::string& name) { return name.ends_with("linear1.weight"); });
  const auto module = nn::make<M>({.layer = layer_of(golden), .num_layers = layers, .norm = norm});
  EXPECT_EQ(testing::names_of(module->state_dict()), names);
  NamedTensors state;
  for (std::size_t i = 0; i < names.size(); ++i)
    state.emplace_back(names[i], golden.inputs[count + i]);
  module->load_state_dict(state);
  module->to(device);
  module->eval();
  std::vector<Tensor> in;
  for (std::size_t i = 0; i < count; ++i)
    in.push_back(golden.inputs[i].to(device).set_requires_grad());
  const Tensor y = run(module, in, mask_of(golden, in[0]));
  expect_close(y, golden.outputs[0], "output");
  y.backward(golden.grad_outputs[0].to(device));
  const auto parameters = module->parameters();
  for (std::size_t i = 0; i < golden.grads.size(); ++i)
    expect_close((i < count ? in[i] : parameters[i - count]).grad(), golden.grads[i],
                 i < count ? "gradient of an input" : "gradient of " + names[i - count]);
}

void expect_all_golden_transformers(Device device) {
  int cases = 0;
  for (const GoldenCase& golden : testing::load_golden("modules")) {
    if (golden.op == "transformer_encoder")
      expect_golden_transformer<nn::TransformerEncoder>(golden, device);
    if (golden.op == "transformer_decoder")
      expect_golden_transformer<nn::TransformerDecoder>(golden, device);
    cases += golden.op.starts_with("transformer");
  }
  EXPECT_EQ(cases, 8);
}

TEST(Transformer, MatchesPyTorchByTheNamesOfItsParameters) { expect_all_golden_transformers(cpu); }

class TransformerOnGpu : public testing::OnGpu {};
TEST_F(TransformerOnGpu, MatchesPyTorchByTheNamesOfItsParameters) {
  expect_all_golden_transformers(device);
}

TEST(Transformer, HasTheRightGradients) {
  manual_seed(3);
  for (const bool norm_first : {false, true}) {
    const nn::TransformerLayerOptions options{.features = 4,
                                              .heads = 2,
                                              .dim_feedforward = 3,
                                              .dropout = 0.3,
                                              .activation = nn::TransformerActivation::gelu,
                                              .norm_first = norm_first,
                                              .tensor = {DType::f64}};
    const auto layer = nn::make<nn::TransformerDecoderLayer>(options);
    expect_gradients(
        [&](const std::vector<Tensor>& in) {
          manual_seed(5);  // the same elements are dropped out
          return layer(in[0], in[1], nn::AttentionMask{.is_causal = true});
        },
        {randn({2, 3, 4}, {DType::f64}), randn({2, 2, 4}, {DType::f64})});
  }
}

TEST(Transformer, DropsOutInTrainingOnly) {
  const auto encoder = nn::make<nn::TransformerEncoder>(
      {.layer = {.features = 4, .heads = 2, .dim_feedforward = 8, .dropout = 0.5}});
  EXPECT_EQ(encoder->layers->size(), 6u);
  const Tensor x = randn({2, 3, 4});
  EXPECT_FALSE(equal(encoder(x), encoder(x)));
  encoder->eval();
  EXPECT_TRUE(equal(encoder(x), encoder(x)));
}

// Where nothing is seen or dropped out, residuals are added in products.
TEST(Transformer, GivesTheSameToThoseWhoSeeItsParts) {
  for (const bool norm_first : {false, true}) {
    const auto layer = nn::make<nn::TransformerEncoderLayer>({.features = 4,
                                                              .heads = 2,
                                                              .dim_feedforward = 3,
                                                              .dropout = 0,
                                                              .norm_first = norm_first,
                                                              .tensor = {DType::f64}});
    const Tensor x = randn({2, 3, 4}, {DType::f64}), alone = layer(x);
    std::vector<Tensor> branches;
    for (auto& [name, module] : layer->named_modules())
      if (name == "self_attn" || name == "linear2")
        module->add_call_hooks({.after = [&](nn::Module&, std::span<const Tensor> results) {
          branches.push_back(results[0]);
        }});
    EXPECT_TRUE(allclose(layer(x), alone, 1e-12, 1e-12));
    ASSERT_EQ(branches.size(), 2u);
    if (norm_first)
      EXPECT_TRUE(allclose(x + branches[0] + branches[1], alone, 1e-12, 1e-12));
    else
      EXPECT_TRUE(
          allclose(layer->norm2(layer->norm1(x + branches[0]) + branches[1]), alone, 1e-12, 1e-12));
  }
}

TEST(Transformer, RefusesWhatDoesNotFit) {
  EXPECT_THROW(nn::make<nn::TransformerEncoderLayer>({.features = 6, .heads = 4}), InvalidArgument);
  EXPECT_THROW(nn::make<nn::TransformerEncoderLayer>({.features = 4, .dim_feedforward = 0}),
               InvalidArgument);
  EXPECT_THROW(nn::make<nn::TransformerDecoderLayer>({.features = 4, .dropout = 2}),
               InvalidArgument);
  EXPECT_THROW(nn::make<nn::TransformerEncoder>({.layer = {.features = 4}, .num_layers = 0}),
               InvalidArgument);
  const auto layer = nn::make<nn::TransformerEncoderLayer>({.features = 4});
  EXPECT_THROW(layer(randn({2, 3, 5})), InvalidArgument);
  EXPECT_EQ(layer(randn({0, 3, 4})).shape(), (Shape{0, 3, 4}));
}

}  // namespace
}  // namespace lockstep
