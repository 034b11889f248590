#include "lockstep/models/vit.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::expect_close;

const models::VisionTransformerOptions tiny_vit{.image_size = 16,
                                                .patch_size = 4,
                                                .layers = 2,
                                                .heads = 2,
                                                .hidden_dim = 16,
                                                .mlp_dim = 24,
                                                .num_classes = 5};

/// A model of the golden file's sizes and weights.
nn::ModulePtr<models::VisionTransformer> filled(const TensorOptions& tensor) {
  models::VisionTransformerOptions options = tiny_vit;
  options.tensor = tensor;
  auto model = nn::make<models::VisionTransformer>(options);
  NamedTensors state = model->state_dict();
  for (auto& [name, value] : state)
    value = testing::fill_rule(name, value.shape()).to(tensor.device, tensor.dtype);
  model->load_state_dict(state);
  return model;
}

class GoldenVisionTransformer : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }

  testing::PlaceScope scope{GetParam()};
  Device device = GetParam().device;
  io::SafetensorsFile expected =
      io::SafetensorsFile::open(testing::golden_dir() / "vit-tiny.safetensors");

  Tensor images(std::size_t step, DType dtype) const {
    const std::string name = "input.images." + std::to_string(step);
    return (testing::fill_rule(name, {4, 3, 16, 16}).to(DType::f64) * 20.0).to(device, dtype);
  }
  Tensor labels() const { return expected.tensor("labels").to(device); }

  /// Scores do not see the biases of keys, whose gradients are rounding errors: which way AdamW
  /// takes them is left to chance.
  static Tensor without_keys(const std::string& name, const Tensor& x) {
    if (!name.ends_with("in_proj_bias")) return x;
    const std::int64_t third = x.size(0) / 3;
    return cat({x.slice(0, 0, third), x.slice(0, 2 * third, 3 * third)}, 0);
  }

  void check_first_batch(DType dtype, double tolerance, bool channels_last = false) const {
    const auto model = filled({dtype, device});
    const Tensor given = images(0, dtype);
    const Tensor logits = model(channels_last ? given.channels_last() : given);
    expect_close(logits, expected.tensor("logits"), tolerance, "logits");
    const Tensor loss = cross_entropy(logits, labels());
    expect_close(loss, expected.tensor("loss").reshape({}), tolerance, "loss");
    loss.backward();
    for (const auto& [name, parameter] : model->named_parameters())
      expect_close(parameter.grad(), expected.tensor("grad." + name), tolerance * 10, name);
  }

  /// Trains as the file's header says. Losses are relative, weights relative in norm.
  void train(DType dtype, double loss_tolerance, double weight_tolerance) const {
    const auto model = filled({dtype, device});
    optim::AdamW optimizer(model->parameters(), {.lr = 4e-3, .weight_decay = 0.1});
    const auto losses = expected.tensor("train_losses").to_vector<double>();
    for (std::size_t step = 0; step < losses.size(); ++step) {
      const Tensor loss = cross_entropy(model(images(step, dtype)), labels());
      EXPECT_NEAR(loss.item(), losses[step], loss_tolerance * losses[step]) << "step " << step;
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      const Tensor wanted = without_keys(name, expected.tensor("after." + name));
      const Tensor found = without_keys(name, parameter.detach().to(cpu, DType::f64));
      EXPECT_LE(norm(found - wanted).item(), weight_tolerance * norm(wanted).item()) << name;
    }
  }
};

TEST_P(GoldenVisionTransformer, GivesTorchvisionsLogitsLossAndGradientsInF64) {
  check_first_batch(DType::f64, 1e-9);
}
TEST_P(GoldenVisionTransformer, GivesTorchvisionsLogitsLossAndGradientsInF32) {
  check_first_batch(DType::f32, 1e-5);
  check_first_batch(DType::f32, 1e-5, true);
}
TEST_P(GoldenVisionTransformer, TrainsLikeTorchvisionInF64) { train(DType::f64, 1e-9, 1e-7); }
TEST_P(GoldenVisionTransformer, TrainsLikeTorchvisionInF32) { train(DType::f32, 1e-5, 5e-3); }

TEST_P(GoldenVisionTransformer, LearnsABatchByHeartUnderMixedPrecision) {
  manual_seed(5);
  const auto model = filled({DType::f32, device});
  optim::AdamW optimizer(model->parameters(), {.lr = 4e-3});
  double first = 0, last = 0;
  for (int step = 0; step < 12; ++step) {
    optimizer.zero_grad();
    const Tensor loss = [&] {
      const amp::Autocast autocast(DType::bf16);
      return cross_entropy(model(images(0, DType::f32)), labels());
    }();
    last = loss.item();
    if (step == 0) first = last;
    loss.backward();
    optimizer.step();
  }
  EXPECT_LT(last, 0.5 * first);
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenVisionTransformer, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

TEST(VisionTransformer, HasTorchvisionsNamesAndShapes) {
  const auto file = io::SafetensorsFile::open(testing::golden_dir() / "vit-tiny.safetensors");
  const auto names = nlohmann::json::parse(file.metadata().at("parameters"));
  const auto model = nn::make<models::VisionTransformer>(tiny_vit);
  const auto parameters = model->named_parameters();
  ASSERT_EQ(parameters.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(parameters[i].first, names[i][0].get<std::string>());
    const auto wanted = names[i][1].get<std::vector<std::int64_t>>();
    const Shape& shape = parameters[i].second.shape();
    EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()), wanted) << parameters[i].first;
  }
}

TEST(VisionTransformer, HasThePublishedParameterCounts) {
  EXPECT_EQ(models::vit_b_16()->parameter_count(), 86567656);
  EXPECT_EQ(models::vit_b_32()->parameter_count(), 88224232);
}

TEST(VisionTransformer, StartsAsTorchvisionsDoes) {
  manual_seed(6);
  const auto model = models::vit_b_16({.image_size = 32, .num_classes = 3});
  const auto deviation = [](const Tensor& x) { return std::sqrt(var(x.detach()).item()); };
  EXPECT_NEAR(deviation(model->conv_proj->weight), std::sqrt(1.0 / (3 * 16 * 16)), 1e-3);
  EXPECT_NEAR(deviation(model->encoder->pos_embedding), 0.02, 2e-3);
  EXPECT_EQ(norm(model->heads->head->weight.detach()).item(), 0);
  EXPECT_EQ(norm(model->class_token.detach()).item(), 0);
  const Tensor logits = model(randn({1, 3, 32, 32}));
  EXPECT_EQ(logits.shape(), Shape({1, 3}));
}

TEST(VisionTransformer, ComesBackFromAFile) {
  const testing::TemporaryFolder folder;
  const auto model = nn::make<models::VisionTransformer>(tiny_vit);
  const auto again = nn::make<models::VisionTransformer>(tiny_vit);
  io::save_safetensors(folder.path() / "vit.safetensors", model->state_dict());
  again->load_state_dict(io::SafetensorsFile::open(folder.path() / "vit.safetensors").tensors());
  const Tensor images = randn({2, 3, 16, 16});
  EXPECT_TRUE(equal(model(images), again(images)));
}

TEST(VisionTransformer, DropsOutWhileTrainingOnly) {
  manual_seed(7);
  models::VisionTransformerOptions options = tiny_vit;
  options.dropout = 0.5;
  const auto model = nn::make<models::VisionTransformer>(options);
  nn::init::normal_(model->heads->head->weight);
  const Tensor images = randn({2, 3, 16, 16});
  EXPECT_FALSE(equal(model(images), model(images)));
  model->eval();
  EXPECT_TRUE(equal(model(images), model(images)));
}

TEST(VisionTransformer, GivesTheSameWhereHooksLookOn) {
  const auto model = filled({DType::f64});
  const Tensor images = randn({2, 3, 16, 16}, {DType::f64});
  const Tensor wanted = model(images);
  std::vector<Shape> seen;
  for (const auto& [name, module] : model->named_modules())
    if (name.ends_with("mlp") || name.ends_with("mlp.0") || name.ends_with("out_proj") ||
        name.ends_with("self_attention"))
      module->add_call_hooks(
          {.after = [&](nn::Module&, std::span<const Tensor> y) { seen.push_back(y[0].shape()); }});
  expect_close(model(images), wanted, 1e-12, "logits");
  EXPECT_EQ(seen.size(), 8);
}

TEST(VisionTransformer, RefusesWhatDoesNotFit) {
  const auto make = [](const models::VisionTransformerOptions& options) {
    return nn::make<models::VisionTransformer>(options);
  };
  EXPECT_THROW(make({.image_size = 30}), InvalidArgument);
  EXPECT_THROW(make({.heads = 5}), InvalidArgument);
  EXPECT_THROW(make({.layers = 0}), InvalidArgument);
  EXPECT_THROW(make(tiny_vit)(zeros({1, 3, 16, 20})), InvalidArgument);
  EXPECT_THAT(
      [&] {
        make(tiny_vit)(zeros({1, 1, 16, 16}));
      },
      ::testing::ThrowsMessage<InvalidArgument>(
          ::testing::HasSubstr("images of shape [1, 1, 16, 16]; expected [N, 3, 16, 16]")));
}

}  // namespace
}  // namespace lockstep
