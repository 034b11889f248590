#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Net : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 3, 4};
  nn::Child<nn::BatchNorm1d> norm{this, "norm", 4};
  nn::Child<nn::Linear> last{this, "last", {.in = 4, .out = 2, .bias = false}};
  nn::Parameter scale{this, "scale", ones({2})};
  nn::Buffer calls{this, "calls", zeros({}), false};
  Tensor forward(const Tensor& x) { return last(norm(first(x))) * scale; }
};

/// Two names for one weight, as language models tie their first and last layers.
struct Tied : nn::Module {
  nn::Child<nn::Embedding> table{this, "table", 5, 3};
  nn::Child<nn::Linear> other{this, "other", 2, 2};
  nn::Parameter output{this, "output", table->weight};
};

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TEST(Module, NamesParametersByPathOwnOnesFirst) {
  const auto net = nn::make<Net>();
  EXPECT_THAT(names_of(net->named_parameters()),
              ElementsAre("scale", "first.weight", "first.bias", "norm.weight", "norm.bias",
                          "last.weight"));
  EXPECT_EQ(net->parameters().size(), 6u);
  EXPECT_EQ(net->parameter_count(), 2 + 12 + 4 + 4 + 4 + 8);
  EXPECT_THAT(
      names_of(net->named_buffers()),
      ElementsAre("calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
}

TEST(Module, RunsThroughItsHandle) {
  const auto net = nn::make<Net>();
  const Tensor y = net(randn({5, 3}));
  EXPECT_EQ(y.shape(), (Shape{5, 2}));
  sum(y).backward();
  for (const auto& [name, parameter] : net->named_parameters())
    EXPECT_TRUE(parameter.grad().defined()) << name;
}

TEST(Module, LivesOnTheStackToo) {
  Net net;
  EXPECT_EQ(net.forward(randn({2, 3})).shape(), (Shape{2, 2}));
}

TEST(Module, LeavesOutUndefinedParameters) {
  const auto layer = nn::make<nn::Linear>({.in = 2, .out = 2, .bias = false});
  EXPECT_FALSE(layer->bias.defined());
  EXPECT_EQ(layer->parameters().size(), 1u);
}

TEST(Module, RefusesNamesThatAreTakenOrMalformed) {
  struct Doubled : nn::Module {
    nn::Parameter a{this, "a", ones({1})};
    nn::Parameter b{this, "a", ones({1})};
  };
  EXPECT_THROW(nn::make<Doubled>(), InvalidArgument);
  const auto net = nn::make<Net>();
  EXPECT_THROW(net->register_parameter("a.b", ones({1})), InvalidArgument);
  EXPECT_THROW(net->register_buffer("", ones({1})), InvalidArgument);
}

TEST(Module, RefusesParametersThatCannotHaveAGradient) {
  const auto net = nn::make<Net>();
  EXPECT_THROW(net->register_parameter("index", arange(3)), InvalidArgument);
  EXPECT_THROW(net->register_parameter("computed", net->scale * 2.0), InvalidArgument);
}

TEST(Module, SwitchesModeOfTheWholeTree) {
  const auto net = nn::make<Net>();
  EXPECT_TRUE(net->norm->is_training());
  net->eval();
  EXPECT_FALSE(net->norm->is_training());
  net->train();
  EXPECT_TRUE(net->norm->is_training());
}

TEST(Module, ConvertsDtypeBehindTheSameTensors) {
  const auto net = nn::make<Net>();
  const std::vector<Tensor> before = net->parameters();
  net->to(DType::f64);
  const std::vector<Tensor> after = net->parameters();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].is_same(after[i]));
    EXPECT_EQ(before[i].dtype(), DType::f64);
    EXPECT_TRUE(before[i].requires_grad());
  }
  EXPECT_EQ(net->norm->running_mean.dtype(), DType::f64);
  EXPECT_EQ(net->norm->num_batches_tracked.dtype(), DType::i64);
  EXPECT_EQ(net(randn({4, 3}, {DType::f64})).dtype(), DType::f64);
  EXPECT_THROW(net->to(DType::i64), InvalidArgument);
}

TEST(Module, KeepsRunningStatisticsWideInHalfPrecision) {
  const auto net = nn::make<Net>();
  net->to(DType::bf16);
  EXPECT_EQ(net->norm->weight.dtype(), DType::bf16);
  EXPECT_EQ(net->norm->running_mean.dtype(), DType::f32);
  const Tensor x = randn({64, 3}).to(DType::bf16);
  const Tensor y = net(x);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_NEAR(mean(y.detach().to(DType::f32)).item(), 0.0, 0.02);
  sum(y).backward();
  EXPECT_EQ(net->first->weight.grad().dtype(), DType::bf16);
}

TEST(Module, ZeroesOrDropsGradients) {
  const auto net = nn::make<Net>();
  sum(net(randn({4, 3}))).backward();
  net->zero_grad(false);
  EXPECT_TRUE(equal(net->scale.grad(), zeros({2})));
  net->zero_grad();
  EXPECT_FALSE(net->scale.grad().defined());
}

TEST(Module, ListsASharedTensorOnceUnderItsFirstName) {
  const auto tied = nn::make<Tied>();
  EXPECT_TRUE(tied->output.is_same(tied->table->weight));
  EXPECT_THAT(names_of(tied->named_parameters()),
              ElementsAre("output", "other.weight", "other.bias"));
  EXPECT_THAT(names_of(tied->state_dict()), ElementsAre("output", "other.weight", "other.bias"));
  EXPECT_THAT(tied->aliases(),
              ElementsAre(std::pair<std::string, std::string>{"table.weight", "output"}));
  tied->to(DType::f64);
  EXPECT_TRUE(tied->output.is_same(tied->table->weight));
}

TEST(Module, PrintsTheTreeWithParameterCounts) {
  std::ostringstream out;
  out << *nn::make<Net>();
  EXPECT_THAT(out.str(), HasSubstr("  first: Linear(3, 4)  16 parameters\n"));
  EXPECT_THAT(out.str(), HasSubstr("  last: Linear(4, 2, no bias)  8 parameters\n"));
}

TEST(StateDict, RoundTrips) {
  const auto from = nn::make<Net>(), to = nn::make<Net>();
  from(randn({8, 3}));  // moves the running statistics
  EXPECT_FALSE(equal(from->norm->running_mean, to->norm->running_mean));
  to->load_state_dict(from->state_dict());
  from->eval();
  to->eval();
  const Tensor x = randn({4, 3});
  EXPECT_TRUE(equal(from(x), to(x)));
  EXPECT_EQ(to->norm->num_batches_tracked.item(), 1);
}

TEST(StateDict, LeavesOutBuffersThatAreNotPersistent) {
  const auto net = nn::make<Net>();
  EXPECT_THAT(names_of(net->state_dict()),
              ElementsAre("scale", "first.weight", "first.bias", "norm.weight", "norm.bias",
                          "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
                          "last.weight"));
}

TEST(StateDict, NamesEveryFaultAndChangesNothing) {
  const auto net = nn::make<Net>();
  const Tensor before = net->scale.clone();
  NamedTensors state = nn::make<Net>()->state_dict();
  state[0].second = full({2}, 7.0);            // scale: would load
  state[1].second = zeros({4, 4});             // first.weight
  state[2].second = zeros({4}, {DType::f64});  // first.bias
  state.back().first = "final.weight";         // last.weight
  try {
    net->load_state_dict(state);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    const std::string what = error.what();
    EXPECT_THAT(what, HasSubstr("first.weight: shape [4, 4], expected [4, 3]"));
    EXPECT_THAT(what, HasSubstr("first.bias: dtype f64, expected f32"));
    EXPECT_THAT(what, HasSubstr("last.weight: missing"));
    EXPECT_THAT(what, HasSubstr("final.weight: unexpected"));
  }
  EXPECT_TRUE(equal(net->scale, before));
}

TEST(StateDict, ReportsWhatItSkipsWhenNotStrict) {
  const auto net = nn::make<Net>();
  const nn::LoadReport report =
      net->load_state_dict({{"scale", full({2}, 7.0)}, {"extra", ones({1})}}, false);
  EXPECT_THAT(report.unexpected, ElementsAre("extra"));
  EXPECT_EQ(report.missing.size(), 8u);
  EXPECT_EQ(net->scale.to_vector<float>(), (std::vector<float>{7, 7}));
}

TEST(StateDict, TakesASharedTensorUnderAnyOfItsNames) {
  const auto tied = nn::make<Tied>();
  NamedTensors state = tied->state_dict();
  state[0] = {"table.weight", full({5, 3}, 2.0)};
  tied->load_state_dict(state);
  EXPECT_TRUE(equal(tied->output, full({5, 3}, 2.0)));
  state.emplace_back("output", full({5, 3}, 3.0));
  EXPECT_THROW(tied->load_state_dict(state), InvalidArgument);
}

TEST(StateDict, TakesASharedTensorThatHoldsNanUnderBothNames) {
  const auto tied = nn::make<Tied>();
  const Tensor value = full({5, 3}, std::numeric_limits<double>::quiet_NaN());
  NamedTensors state = tied->state_dict();
  state[0] = {"table.weight", value};
  state.emplace_back("output", value.clone());
  tied->load_state_dict(state);
  EXPECT_TRUE(equal(tied->output, value, true));
  EXPECT_FALSE(equal(tied->output, value));
}

TEST(SetData, KeepsTheLeafAndDropsItsGradient) {
  Tensor x = ones({2}).set_requires_grad();
  const Tensor handle = x;
  sum(x).backward();
  x.set_data(zeros({3}, {DType::f64}));
  EXPECT_EQ(handle.shape(), (Shape{3}));
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_FALSE(handle.grad().defined());
  sum(handle).backward();
  EXPECT_TRUE(equal(handle.grad(), ones({3}, {DType::f64})));
  EXPECT_THROW(x.set_data(arange(3)), InvalidArgument);
  EXPECT_THROW((x * 2.0).set_data(x), InvalidArgument);
}

TEST(Sequential, RunsModulesOfDifferentTypesInOrder) {
  const auto net = nn::make<nn::Sequential>(nn::make<nn::Linear>(3, 4), nn::make<nn::ReLU>(),
                                            nn::make<nn::Linear>(4, 2));
  EXPECT_THAT(names_of(net->named_parameters()),
              ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
  EXPECT_EQ(net(randn({5, 3})).shape(), (Shape{5, 2}));
  const Tensor x = ones({1});
  EXPECT_TRUE(nn::make<nn::Sequential>()(x).is_same(x));
}

TEST(ModuleList, HoldsModulesMadeAlike) {
  const auto list = nn::make<nn::ModuleList<nn::Linear>>(3, 2, 2);
  EXPECT_EQ(list->size(), 3u);
  EXPECT_EQ(list->named_parameters().back().first, "2.bias");
  Tensor x = ones({1, 2});
  for (const auto& layer : *list) x = layer(x);
  EXPECT_THROW((*list)[3], InvalidArgument);
}

}  // namespace
}  // namespace lockstep
