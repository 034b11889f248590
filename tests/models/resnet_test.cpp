#include "lockstep/models/resnet.hpp"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "backend/backend.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/models/simple.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::expect_close;

struct ResNetCase {
  std::string_view backend;
  const char* file;
  models::ResNet::Depth depth;
  DType dtype;
  double tolerance;
  std::string name() const {
    return std::string(file) + (dtype == DType::f64 ? "_f64_" : "_f32_") + std::string(backend);
  }
};

std::ostream& operator<<(std::ostream& out, const ResNetCase& each) { return out << each.name(); }

class GoldenResNet : public ::testing::TestWithParam<ResNetCase> {
 protected:
  GoldenResNet() { backend::use_cpu_backend(GetParam().backend); }
  ~GoldenResNet() override { backend::use_cpu_backend(backend::cpu_backends().front()); }

  io::SafetensorsFile file = io::SafetensorsFile::open(
      testing::golden_dir() / (std::string(GetParam().file) + ".safetensors"));
  nn::ModulePtr<models::ResNet> model = nn::make<models::ResNet>(
      GetParam().depth, models::ResNetOptions{.num_classes = 10, .tensor = {GetParam().dtype}});

  void fill_state() {
    NamedTensors state = model->state_dict();
    for (auto& [name, value] : state)
      if (is_floating(value.dtype()))
        value = testing::fill_rule(name, value.shape()).to(value.dtype());
    model->load_state_dict(state);
  }

  Tensor images() const {
    const Tensor filled = testing::fill_rule("input.images", {4, 3, 64, 64}).to(DType::f64);
    return (filled / amax(abs(filled)).item()).to(GetParam().dtype);
  }

  Tensor norms_of(const NamedTensors& tensors, std::string_view ending) const {
    std::vector<double> norms;
    for (const auto& [name, tensor] : tensors)
      if (name.ends_with(ending)) norms.push_back(norm(tensor.to(DType::f64)).item());
    return tensor(norms);
  }
};

TEST_P(GoldenResNet, GivesPytorchsResults) {
  const double tolerance = GetParam().tolerance;
  fill_state();
  model->eval();
  expect_close(no_grad([&] { return model(images()); }), file.tensor("eval_logits"), tolerance,
               "eval logits");
  model->train();
  const Tensor logits = model(images());
  expect_close(logits, file.tensor("train_logits"), tolerance, "training logits");
  const Tensor loss = cross_entropy(logits, file.tensor("labels"));
  expect_close(loss, file.tensor("loss").reshape({}), tolerance, "loss");
  expect_close(norms_of(model->named_buffers(), "running_mean"), file.tensor("running_mean_norms"),
               tolerance, "running means");
  expect_close(norms_of(model->named_buffers(), "running_var"), file.tensor("running_var_norms"),
               tolerance, "running variances");
  loss.backward();
  std::vector<double> gradient_norms;
  const auto parameters = model->named_parameters();
  const json names = json::parse(file.metadata().at("parameters"));
  ASSERT_EQ(parameters.size(), names.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].first, names[i][0].get<std::string>());
    gradient_norms.push_back(norm(parameters[i].second.grad().to(DType::f64)).item());
  }
  expect_close(tensor(gradient_norms), file.tensor("grad_norms"), tolerance, "gradient norms");
}

/// Both networks in f32 on every CPU backend, and in f64, which all leave to the reference.
std::vector<ResNetCase> cases() {
  std::vector<ResNetCase> all;
  for (const auto& [file, depth] : {std::pair{"resnet18", models::ResNet::Depth::d18},
                                    std::pair{"resnet50", models::ResNet::Depth::d50}}) {
    all.push_back({backend::reference().name, file, depth, DType::f64, 1e-8});
    for (const auto name : backend::cpu_backends())
      all.push_back({name, file, depth, DType::f32, 1e-3});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenResNet, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name(); });

TEST(ResNet, HasTheParameterCountsOfThePublishedOnes) {
  EXPECT_EQ(models::resnet18()->parameter_count(), 11689512);
  EXPECT_EQ(models::resnet34()->parameter_count(), 21797672);
  EXPECT_EQ(models::resnet50()->parameter_count(), 25557032);
}

TEST(ResNet, StartsItsConvolutionsByFanOut) {
  manual_seed(1);
  const auto model = models::resnet18({.num_classes = 4});
  EXPECT_NEAR(std::sqrt(var(model->conv1->weight.detach()).item()), std::sqrt(2.0 / (64 * 49)),
              1e-3);
  EXPECT_EQ(model->fc->weight.shape(), (Shape{4, 512}));
}

/// Steps until the loss on one batch has fallen to a tenth.
template <class M>
bool learns(const nn::ModulePtr<M>& model, const Tensor& x, const Tensor& targets) {
  optim::Adam optimizer(model->parameters(), {.lr = 3e-3});
  double first = 0;
  for (int step = 0; step < 500; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(x), targets);
    if (step == 0) first = loss.item();
    if (loss.item() < 0.1 * first) return true;
    loss.backward();
    optimizer.step();
  }
  return false;
}

TEST(Mlp, LearnsABatchByHeart) {
  manual_seed(2);
  const Tensor targets = tensor<std::int64_t>({0, 1, 2, 1});
  EXPECT_TRUE(
      learns(models::mlp({.in = 6, .hidden = {16, 8}, .out = 3}), randn({4, 2, 3}), targets));
}

TEST(SmallCnn, LearnsABatchByHeart) {
  manual_seed(3);
  const Tensor targets = tensor<std::int64_t>({7, 1, 2, 1});
  EXPECT_TRUE(learns(models::small_cnn(), randn({4, 1, 28, 28}), targets));
}

}  // namespace
}  // namespace lockstep
