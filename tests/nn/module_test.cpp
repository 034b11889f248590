#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/names_of.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names_of;
using ::testing::Not;
using testing::refusal;
using ::testing::ThrowsMessage;

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

// Its last handle would delete it: `Net net;` and a module as a plain member do not compile.
static_assert(std::is_abstract_v<Net> && std::is_abstract_v<nn::Linear>);
static_assert(!std::is_default_constructible_v<Net>);
static_assert(!std::is_constructible_v<nn::Linear, int, int>);

TEST(Module, GivesOutItsMembersByValue) {
  const auto layer = nn::make<nn::Linear>(3, 2);
  const auto weight = layer->weight;
  EXPECT_TRUE(weight.is_same(layer->weight));
  const auto net = nn::make<Net>();
  const auto first = net->first;
  EXPECT_EQ(first.handle().get(), net->first.handle().get());
  const auto calls = net->calls;
  EXPECT_TRUE(calls.is_same(net->calls));
}

TEST(Module, RefusesToKeepAModuleThatItHasNotRegistered) {
  struct Forgetful : nn::Module {
    nn::ModulePtr<nn::Linear> fc = nn::make<nn::Linear>(3, 2);
  };
  EXPECT_THAT(refusal([] { nn::make<Forgetful>(); }),
              HasSubstr("Forgetful keeps a Linear(3, 2) that it has not registered"));
  struct Given : nn::Module {
    explicit Given(nn::ModulePtr<nn::Linear> given) : fc(std::move(given)) {}
    nn::ModulePtr<nn::Linear> fc;
  };
  EXPECT_THAT(refusal([] { nn::make<Given>(nn::make<nn::Linear>(3, 2)); }),
              HasSubstr("Given keeps a Linear(3, 2)"));
  struct Inner : nn::Module {
    std::vector<nn::ModulePtr<nn::Linear>> all{nn::make<nn::Linear>(3, 2)};
  };
  struct Outer : nn::Module {
    nn::Child<Inner> inner{this, "inner"};
  };
  EXPECT_THAT(refusal([] { nn::make<Outer>(); }), HasSubstr("Inner keeps a Linear"));
}

TEST(Module, KeepsModulesThatBelongElsewhereOrAreFrozen) {
  struct Registers : nn::Module {
    nn::ModulePtr<nn::Linear> fc = nn::make<nn::Linear>(3, 2);
    Registers() { register_module("fc", fc.share()); }
  };
  nn::make<Registers>();
  struct Teacher : nn::Module {
    explicit Teacher(nn::ModulePtr<nn::Linear> given) : fc(std::move(given)) {}
    nn::ModulePtr<nn::Linear> fc;
  };
  const auto frozen = nn::make<nn::Linear>(3, 2);
  frozen->requires_grad_(false);
  nn::make<Teacher>(frozen);
  const auto net = nn::make<Net>();
  nn::make<Teacher>(net->first.handle());
  struct Temporary : nn::Module {
    Temporary() { nn::make<nn::Linear>(3, 2)(ones({1, 3})); }
  };
  nn::make<Temporary>();
}

TEST(Module, RefusesToBePartOfItself) {
  struct Holder : nn::Module {};
  const auto outer = nn::make<Holder>(), inner = nn::make<Holder>();
  outer->register_module("inner", inner.share());
  EXPECT_THROW(inner->register_module("outer", outer.share()), InvalidArgument);
  EXPECT_THROW(inner->register_module("inner", inner.share()), InvalidArgument);
}

/// blocks.0, blocks.1, ... each with a layer fc1.
struct Deep : nn::Module {
  struct Block : nn::Module {
    explicit Block(std::int64_t width) : fc1(this, "fc1", width, 4) {}
    Tensor forward(const Tensor& x) const { return x + fc1(x); }
    nn::Child<nn::Linear> fc1;
  };
  Deep() {
    for (const std::int64_t width : {4, 4, 4, 5}) blocks->append(nn::make<Block>(width));
  }
  Tensor forward(Tensor x) const {
    for (const auto& block : *blocks) x = block(x);
    return x;
  }
  nn::Child<nn::ModuleList<Block>> blocks{this, "blocks"};
};

TEST(Module, SaysInWhichLayerAnErrorArose) {
  const auto net = nn::make<Deep>();
  const Tensor x = ones({2, 4});
  EXPECT_THAT(refusal([&] { net(x); }), ::testing::StartsWith("in blocks.3.fc1: "));
  EXPECT_THAT(refusal([&] { net->forward(x); }), ::testing::StartsWith("in blocks.3.fc1: "));
  EXPECT_THAT(refusal([&] {
                net->blocks[0](ones({3, 1, 4, 2}).select(3, 0).transpose(0, 2));
              }),
              ::testing::StartsWith("in blocks.0.fc1: "));
  // The type of an error is kept, and a module of its own has no name.
  const auto alone = nn::make<nn::Linear>(3, 2);
  EXPECT_THAT(refusal([&] { alone(x); }), ::testing::Not(::testing::StartsWith("in ")));
  const auto list = nn::make<nn::Sequential>(nn::make<nn::ReLU>(), alone);
  EXPECT_THAT(refusal([&] { list(x); }), ::testing::StartsWith("in 1: "));
}

TEST(Module, ForgetsItsPlaceWhenItsOwnerIsGone) {
  auto layer = nn::make<nn::Linear>(3, 2);
  {
    const auto list = nn::make<nn::Sequential>(layer);
    EXPECT_EQ(layer->path(), "0");
  }
  EXPECT_EQ(layer->path(), "");
}

TEST(CallHooks, RunAroundForwardInNestedOrder) {
  const auto net = nn::make<Net>();
  std::vector<std::string> calls;
  const auto record = [&](nn::Module& module, const std::string& name) {
    return module.add_call_hooks(
        {.before =
             [&calls, name](nn::Module& each, std::span<const Tensor> arguments) {
               calls.push_back("before " + name + each.path() + " " +
                               std::to_string(arguments.size()));
             },
         .after =
             [&calls, name](nn::Module& each, std::span<const Tensor> results) {
               calls.push_back("after " + name + each.path() + " " +
                               std::to_string(results.size()));
             }});
  };
  record(*net, "net");
  const auto a = record(*net->first, "a:");
  record(*net->first, "b:");
  net(randn({5, 3}));
  EXPECT_THAT(calls, ElementsAre("before net 1", "before a:first 1", "before b:first 1",
                                 "after b:first 1", "after a:first 1", "after net 1"));
  calls.clear();
  net->first->remove_call_hooks(a);
  net->first(randn({5, 3}));
  EXPECT_THAT(calls, ElementsAre("before b:first 1", "after b:first 1"));
}

TEST(CallHooks, SeeTheTensorsAmongArgumentsAndResults) {
  struct Splits : nn::Module {
    std::pair<Tensor, std::vector<Tensor>> forward(const Tensor& x, int times,
                                                   const nn::Parameter& weight) const {
      return {x, std::vector<Tensor>(static_cast<std::size_t>(times), weight)};
    }
  };
  const auto net = nn::make<Splits>();
  const auto layer = nn::make<nn::Linear>(2, 2);
  std::size_t arguments = 0, results = 0;
  net->add_call_hooks({.before = [&](nn::Module&, auto tensors) { arguments = tensors.size(); },
                       .after = [&](nn::Module&, auto tensors) { results = tensors.size(); }});
  net(ones({1}), 3, layer->weight);
  EXPECT_EQ(arguments, 2u);
  EXPECT_EQ(results, 4u);
}

TEST(CallHooks, ThatSeeNoValuesLeaveLayersFused) {
  const auto net = nn::make<nn::Linear>(2, 2);
  std::vector<std::string> calls;
  const auto begin = net->add_call_hooks({.begin = [&] { calls.emplace_back("begin"); }});
  EXPECT_FALSE(net->has_call_hooks());
  const auto seen =
      net->add_call_hooks({.before = [&](nn::Module&, auto) { calls.emplace_back("before"); },
                           .begin = [&] { calls.emplace_back("second begin"); }});
  EXPECT_TRUE(net->has_call_hooks());
  net(ones({1, 2}));
  EXPECT_THAT(calls, ElementsAre("begin", "second begin", "before"));
  net->remove_call_hooks(seen);
  EXPECT_FALSE(net->has_call_hooks());
  net->remove_call_hooks(begin);
  net(ones({1, 2}));
  EXPECT_EQ(calls.size(), 3u);
}

TEST(CallHooks, MayRemoveThemselves) {
  const auto net = nn::make<nn::Linear>(2, 2);
  int calls = 0;
  std::uint64_t id = 0;
  id = net->add_call_hooks({.before = [&](nn::Module& module, auto) {
    ++calls;
    for (const auto each : {id, id + 1}) module.remove_call_hooks(each);
  }});
  net->add_call_hooks({.before = [&](nn::Module&, auto) { ++calls; }});
  net(ones({1, 2}));
  net(ones({1, 2}));
  EXPECT_EQ(calls, 1);
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

TEST(Module, ConvertsNothingIfAWrapperRefuses) {
  const auto net = nn::make<Net>();
  const Tensor memory = zeros({2, 4});
  testing::FixedSink sink(net->last->weight, memory);
  EXPECT_THROW(net->to(DType::f64), InvalidArgument);
  EXPECT_THROW(net->to(cpu, DType::bf16), InvalidArgument);
  for (const Tensor& parameter : net->parameters()) EXPECT_EQ(parameter.dtype(), DType::f32);
  EXPECT_EQ(net->norm->running_mean.dtype(), DType::f32);
  net->to(DType::f32);
  net->to(cpu);
}

/// Of static storage duration, and filled by main, as a program's own model may be.
std::optional<nn::ModulePtr<nn::Linear>> kept_to_the_end;

TEST(Module, MayLiveUntilTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    kept_to_the_end = nn::make<nn::Linear>(2, 2);
    sum((*kept_to_the_end)(ones({3, 2}))).backward();
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
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

TEST(Module, ZeroesGradientsOfFrozenParametersToo) {
  const auto net = nn::make<Net>();
  optim::SGD optimizer(net->parameters(), {.lr = 0.1});
  for (const bool by_optimizer : {false, true}) {
    sum(net(randn({4, 3}))).backward();
    net->requires_grad_(false);
    by_optimizer ? optimizer.zero_grad(false) : net->zero_grad(false);
    net->requires_grad_(true);
    EXPECT_TRUE(equal(net->scale.grad(), zeros({2})));
  }
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
  out << nn::make<Net>();
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

TEST(StateDict, OfAWrappedModuleIsToldByItsPrefix) {
  const auto net = nn::make<Net>();
  NamedTensors state = net->state_dict();
  for (auto& [name, value] : state) name = "module." + name;
  EXPECT_THAT([&] { net->load_state_dict(state); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("without \"module.\", which a wrapper has put before them")));
  state.emplace_back("module.more", zeros({1}));
  EXPECT_THAT([&] { net->load_state_dict(state); },
              ThrowsMessage<InvalidArgument>(Not(HasSubstr("wrapper"))));
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

TEST(StateDict, TakesASharedTensorThatHoldsNaNUnderAllOfItsNames) {
  const auto tied = nn::make<Tied>();
  NamedTensors state = tied->state_dict();
  const Tensor diverged = full({5, 3}, std::numeric_limits<double>::quiet_NaN());
  state[0] = {"output", diverged};
  state.emplace_back("table.weight", diverged.clone());
  tied->load_state_dict(state);
  EXPECT_TRUE(equal(tied->output, diverged, true));
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

struct Tower : nn::Module {
  nn::Child<nn::ModuleList<nn::Linear>> layers{this, "layers", 2, 3, 3};
  Tensor forward(Tensor x) const {
    for (const auto& layer : layers) x = layer(x);
    return layers[0](x);
  }
};

TEST(ModuleList, IsUsedThroughItsOwnersMember) {
  const auto tower = nn::make<Tower>();
  const Tensor x = ones({1, 3});
  const auto& layers = tower->layers;
  EXPECT_TRUE(equal(tower(x), layers[0](layers[1](layers[0](x)))));
  EXPECT_EQ(layers[1]->bias.shape(), (Shape{3}));
}

TEST(ModuleList, HoldsModulesMadeAlike) {
  const auto list = nn::make<nn::ModuleList<nn::Linear>>(3, 2, 2);
  EXPECT_EQ(list->size(), 3u);
  EXPECT_EQ(list->named_parameters().back().first, "2.bias");
  Tensor x = ones({1, 2});
  for (const auto& layer : *list) x = layer(x);
  EXPECT_TRUE(equal((*list)[2]((*list)[1]((*list)[0](ones({1, 2})))), x));
  EXPECT_EQ((*list)[1]->weight.shape(), (Shape{2, 2}));
  EXPECT_THROW((*list)[3], InvalidArgument);
}

}  // namespace
}  // namespace lockstep
