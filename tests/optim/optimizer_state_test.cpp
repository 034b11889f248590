#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/names_of.hpp"
#include "support/place.hpp"

namespace lockstep {
namespace {

using optim::AdamW;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names_of;

Tensor value_of(const NamedTensors& tensors, std::string_view wanted) {
  for (const auto& [name, tensor] : tensors)
    if (name == wanted) return tensor;
  ADD_FAILURE() << wanted << " is not there";
  return zeros({});
}

/// Two parameters with gradients.
struct Pair {
  Tensor weight = tensor<double>({1.0, 2.0}).set_requires_grad();
  Tensor bias = tensor<double>({3.0, 4.0}).set_requires_grad();

  Pair() {
    weight.set_grad(tensor<double>({1.0, 1.0}));
    bias.set_grad(tensor<double>({5.0, 5.0}));
  }
  NamedTensors named() const { return {{"fc.weight", weight}, {"fc.bias", bias}}; }
};

std::string refusal(optim::Optimizer& optimizer, const NamedTensors& state) {
  try {
    optimizer.load_state_dict(state);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(OptimizerState, NamesItsTensorsAfterTheirParameters) {
  const Pair pair;
  optim::SGD optimizer(pair.named(), {.lr = 0.1, .momentum = 0.9});
  optimizer.step();
  EXPECT_THAT(
      names_of(optimizer.state_dict()),
      ElementsAre("fc.weight.group", "fc.weight.step", "fc.weight.momentum_buffer", "fc.bias.group",
                  "fc.bias.step", "fc.bias.momentum_buffer", "groups.kind.SGD", "groups.0.base_lr",
                  "groups.0.lr", "groups.0.momentum", "groups.0.dampening", "groups.0.weight_decay",
                  "groups.0.nesterov", "groups.0.maximize", "groups.0.master_weights"));
}

TEST(OptimizerState, GoesByPositionWithoutNames) {
  const Pair pair;
  AdamW optimizer({pair.weight, pair.bias});
  optimizer.step();
  const NamedTensors state = optimizer.state_dict();
  EXPECT_DOUBLE_EQ(value_of(state, "1.exp_avg").to_vector<double>()[0], 0.5);
}

TEST(OptimizerState, FindsParametersInAnyOrder) {
  const Pair pair;
  AdamW first(pair.named());
  first.step();
  AdamW second(NamedTensors{{"fc.bias", pair.bias}, {"fc.weight", pair.weight}});
  second.load_state_dict(first.state_dict());
  for (const auto* key : {"fc.weight.exp_avg", "fc.bias.exp_avg"})
    EXPECT_TRUE(equal(value_of(first.state_dict(), key), value_of(second.state_dict(), key)));
}

TEST(OptimizerState, BecomesTheTensorsThatNobodyElseHas) {
  const Pair pair;
  optim::SGD optimizer(pair.named(), {.lr = 0.1, .momentum = 0.9});
  optimizer.step();
  constexpr std::string_view name = "fc.weight.momentum_buffer";
  const auto own_copies = [&] {
    NamedTensors state = optimizer.state_dict();
    for (auto& [key, tensor] : state) tensor = tensor.clone();
    return state;
  };
  NamedTensors given = own_copies();
  const void* const place = value_of(given, name).data_ptr();
  optimizer.load_state_dict(given);  // which may change it
  EXPECT_NE(value_of(optimizer.state_dict(), name).data_ptr(), place);
  optimizer.load_state_dict(std::move(given));
  EXPECT_EQ(value_of(optimizer.state_dict(), name).data_ptr(), place);

  optimizer.load_state_dict(optimizer.state_dict());
  EXPECT_EQ(value_of(optimizer.state_dict(), name).data_ptr(), place) << "its own stay";

  std::vector<double> memory{1.0, 2.0};  // of somebody else, who may only let it be read
  NamedTensors borrowed = own_copies();
  for (auto& [key, tensor] : borrowed)
    if (key == name) tensor = from_blob(memory.data(), {2}, {.dtype = DType::f64});
  optimizer.load_state_dict(std::move(borrowed));
  EXPECT_NE(value_of(optimizer.state_dict(), name).data_ptr(), memory.data());
  EXPECT_THAT(value_of(optimizer.state_dict(), name).to_vector<double>(), ElementsAre(1.0, 2.0));
}

// As a checkpoint gives it.
TEST(OptimizerStateOnGpu, ComesFromTheHostIntoWhatIsThere) {
  if (testing::gpu_places().empty() || testing::is_missing(testing::gpu_places()[0]))
    GTEST_SKIP() << "no GPU";
  constexpr std::int64_t elements = 1 << 16;
  Tensor weight = ones({elements}, {.dtype = DType::bf16, .device = cuda(0)});
  weight.set_requires_grad().set_grad(ones_like(weight));
  AdamW optimizer(NamedTensors{{"w", weight}});
  optimizer.step();
  const auto on_host = [&](double factor) {
    NamedTensors state = optimizer.state_dict();
    for (auto& [key, tensor] : state)
      tensor = tensor.numel() > 1 ? (tensor * factor).to(cpu) : tensor.to(cpu);
    return state;
  };
  const auto places = [&] {
    const optim::ParameterState& of = optimizer.parameter_states()[0];
    return std::vector{of.state[0].data_ptr(), of.state[1].data_ptr(), of.master.data_ptr()};
  };
  const auto before = places();
  NamedTensors state = on_host(2.0);
  const Tensor saved = value_of(state, "w.exp_avg");
  reset_peak_memory_stats(cuda(0));
  const std::size_t live = memory_stats(cuda(0)).live_bytes;
  optimizer.load_state_dict(state);
  EXPECT_LT(memory_stats(cuda(0)).peak_live_bytes, live + elements * sizeof(float));
  EXPECT_EQ(places(), before);
  EXPECT_TRUE(equal(value_of(optimizer.state_dict(), "w.exp_avg").to(cpu), saved));

  state = on_host(3.0);
  std::erase_if(state, [](const auto& entry) { return entry.first == "w.master"; });
  EXPECT_THAT(refusal(optimizer, state), HasSubstr("w.master: missing"));
  EXPECT_TRUE(equal(value_of(optimizer.state_dict(), "w.exp_avg").to(cpu), saved));

  const Tensor held = value_of(optimizer.state_dict(), "w.exp_avg");  // by somebody else, too
  optimizer.load_state_dict(on_host(4.0));
  EXPECT_TRUE(equal(held.to(cpu), saved));
  EXPECT_TRUE(equal(value_of(optimizer.state_dict(), "w.exp_avg").to(cpu), saved * 4.0));
}

TEST(OptimizerState, NamesMissingAndUnexpectedKeysAndChangesNothing) {
  const Pair pair;
  AdamW first(pair.named(), {.lr = 0.5}), second(pair.named(), {.lr = 0.1});
  first.step();
  NamedTensors state = first.state_dict();
  std::swap(state[2], state.back());
  state.pop_back();  // fc.weight.exp_avg
  state.emplace_back("fc.scale.exp_avg", zeros({2}));
  const std::string what = refusal(second, state);
  EXPECT_THAT(what, HasSubstr("fc.weight.exp_avg: missing"));
  EXPECT_THAT(what, HasSubstr("fc.scale.exp_avg: unexpected"));
  EXPECT_EQ(second.lr(), 0.1);
  EXPECT_EQ(value_of(second.state_dict(), "fc.bias.step").item(), 0);
}

TEST(OptimizerState, RefusesAPartOfAState) {
  const Pair pair;
  AdamW first(pair.named()), second(pair.named());
  first.step();
  const NamedTensors state = first.state_dict();
  for (std::size_t count = 0; count < state.size(); ++count) {
    if (state[count].first == "groups.kind.AdamW") continue;  // which states of before lack
    EXPECT_THAT(
        refusal(second, {state.begin(), state.begin() + static_cast<std::ptrdiff_t>(count)}),
        HasSubstr(state[count].first + ": missing"));
  }
  EXPECT_EQ(refusal(second, state), "accepted");
}

TEST(OptimizerState, RefusesAStateOfAnotherShapeOrDtype) {
  const Pair pair;
  AdamW optimizer(pair.named());
  optimizer.step();
  NamedTensors state = optimizer.state_dict();
  state[2].second = zeros({3}, {DType::f64});
  state[3].second = zeros({2});
  const std::string what = refusal(optimizer, state);
  EXPECT_THAT(what, HasSubstr("fc.weight.exp_avg: shape [3], f64; expected [2], f64"));
  EXPECT_THAT(what, HasSubstr("fc.weight.exp_avg_sq: shape [2], f32; expected [2], f64"));
}

TEST(OptimizerState, HoldsTheOptionsOfItsGroups) {
  const Pair pair;
  AdamW first(AdamW::Groups{{NamedTensors{{"w", pair.weight}}, {.lr = 0.5, .weight_decay = 0.25}},
                            {NamedTensors{{"b", pair.bias}}, {.lr = 0.125, .amsgrad = true}}});
  first.step();
  first.set_lr(0.75, 1);
  AdamW second(AdamW::Groups{{NamedTensors{{"w", pair.weight}}}, {NamedTensors{{"b", pair.bias}}}});
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.named_options(0), first.named_options(0));
  EXPECT_EQ(second.named_options(1), first.named_options(1));
  EXPECT_EQ(second.options(1).amsgrad, true);
  EXPECT_EQ(second.lr(1), 0.75);
}

TEST(OptimizerState, FollowsExchangedGroupsByTheNamesInThem) {
  const Pair pair;
  const NamedTensors w{{"w", pair.weight}}, b{{"b", pair.bias}};
  AdamW first(AdamW::Groups{{w, {.lr = 0.5}}, {b, {.lr = 0.125}}}), second(AdamW::Groups{{b}, {w}});
  first.step();
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.lr(0), 0.125);
  EXPECT_EQ(second.lr(1), 0.5);
  EXPECT_TRUE(
      equal(value_of(first.state_dict(), "w.exp_avg"), value_of(second.state_dict(), "w.exp_avg")));
}

TEST(OptimizerState, RefusesOtherGroups) {
  const Pair pair;
  AdamW apart(AdamW::Groups{{NamedTensors{{"w", pair.weight}}}, {NamedTensors{{"b", pair.bias}}}});
  AdamW together(NamedTensors{{"w", pair.weight}, {"b", pair.bias}});
  EXPECT_THAT(refusal(together, apart.state_dict()), HasSubstr("b.group: was in group 1"));
  EXPECT_THAT(refusal(apart, together.state_dict()), HasSubstr("b.group: was in group 0"));
}

TEST(OptimizerState, NeedsNamesToTellGroupsApart) {
  const Pair pair;
  AdamW optimizer(AdamW::Groups{{{pair.weight}}, {{pair.bias}}});
  optimizer.step();
  EXPECT_THROW(optimizer.state_dict(), InvalidArgument);
  EXPECT_THROW(optimizer.load_state_dict({}), InvalidArgument);
}

TEST(OptimizerState, RefusesANameGivenTwice) {
  const Pair pair;
  EXPECT_THROW(AdamW(NamedTensors{{"w", pair.weight}, {"w", pair.bias}}), InvalidArgument);
}

// Their states and options have the same names, and mean something else.
TEST(OptimizerState, RefusesThatOfAnotherClass) {
  const Pair pair;
  AdamW decoupled(pair.named());
  optim::Adam plain(pair.named());
  decoupled.step();
  plain.step();
  NamedTensors state = decoupled.state_dict();
  EXPECT_THAT(refusal(plain, state), HasSubstr("it is one of AdamW, and this is Adam"));
  EXPECT_THAT(refusal(decoupled, plain.state_dict()),
              HasSubstr("it is one of Adam, and this is AdamW"));
  EXPECT_THAT(plain.load_matching_state(state),
              ::testing::Contains("it is one of AdamW, and this is Adam"));
  std::erase_if(state, [](const auto& each) { return each.first == "groups.kind.AdamW"; });
  EXPECT_EQ(refusal(decoupled, state), "accepted") << "of a version that did not say so";
}

TEST(OptimizerState, RefusesOptionsOutOfRange) {
  const Pair pair;
  AdamW optimizer(pair.named(), {.lr = 0.1});
  NamedTensors state = optimizer.state_dict();
  for (auto& [name, value] : state)
    if (name == "groups.0.beta1") value = full({}, 1.5, {.dtype = DType::f64});
  EXPECT_THROW(optimizer.load_state_dict(state), InvalidArgument);
  EXPECT_EQ(optimizer.options().beta1, 0.9);
}

/// A state as torch.save would have it: no groups, and steps as f32, or none at all.
NamedTensors as_pytorch_saves(const NamedTensors& state, bool with_steps = true) {
  NamedTensors saved;
  for (const auto& [name, value] : state) {
    if (name.starts_with("groups.") || name.ends_with(".group")) continue;
    if (!name.ends_with(".step"))
      saved.emplace_back(name, value);
    else if (with_steps)
      saved.emplace_back(name, value.to(DType::f32));
  }
  return saved;
}

TEST(OptimizerState, TakesPyTorchsByItsNames) {
  const auto follow = [](auto& first, auto& second, const Pair& own, const Pair& other,
                         bool with_steps) {
    first.step();
    no_grad([&] {
      for (std::size_t i = 0; i < 2; ++i)
        NamedTensors(other.named())[i].second.copy_(own.named()[i].second);
    });
    second.load_pytorch_state(as_pytorch_saves(first.state_dict(), with_steps));
    for (auto* each : {&first, &second}) each->step();
    EXPECT_TRUE(equal(own.weight, other.weight));
    EXPECT_TRUE(equal(own.bias, other.bias));
  };
  {
    const Pair own, other;
    AdamW first(own.named(), {.lr = 0.1}), second(other.named(), {.lr = 0.1});
    follow(first, second, own, other, true);
    EXPECT_EQ(second.lr(), 0.1);
    EXPECT_EQ(value_of(second.state_dict(), "fc.weight.step").item(), 2);
  }
  {
    const Pair own, other;
    optim::SGD first(own.named(), {.lr = 0.1, .momentum = 0.9}),
        second(other.named(), {.lr = 0.1, .momentum = 0.9});
    follow(first, second, own, other, false);
  }
  {
    const Pair own, other;
    optim::NAdam first(own.named()), second(other.named());
    follow(first, second, own, other, true);
  }
}

TEST(OptimizerState, OfPyTorchIsTakenAsAWholeOrNotAtAll) {
  const Pair pair;
  AdamW first(pair.named(), {.lr = 0.1}), second(pair.named(), {.lr = 0.1});
  first.step();
  NamedTensors state = as_pytorch_saves(first.state_dict());
  const NamedTensors before = second.state_dict();
  const auto refused = [&](const char* what) {
    try {
      second.load_pytorch_state(state);
      ADD_FAILURE() << "taken";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
    EXPECT_EQ(names_of(second.state_dict()), names_of(before));
  };
  state.emplace_back("fc.weight.other", zeros({2}));
  refused("fc.weight.other: unexpected");
  state.pop_back();
  std::erase_if(state, [](const auto& entry) { return entry.first == "fc.bias.exp_avg_sq"; });
  refused("fc.bias.exp_avg_sq: missing");
  std::erase_if(state, [](const auto& entry) { return entry.first.starts_with("fc.bias"); });
  second.load_pytorch_state(state);  // a parameter that had no gradient there
  EXPECT_EQ(value_of(second.state_dict(), "fc.bias.step").item(), 0);
  EXPECT_EQ(value_of(second.state_dict(), "fc.weight.step").item(), 1);
}

/// An optimizer of somebody who forgot to count.
struct Uncounted final : optim::OptimizerWith<optim::SGDOptions> {
  explicit Uncounted(const optim::ParameterList& parameters)
      : OptimizerWith(Groups{{parameters, {}}}) {}
  optim::StateNames state_names(std::size_t, const Tensor&) const override {
    static constexpr std::string_view names[] = {"momentum_buffer"};
    return names;
  }
  void update(std::size_t, std::span<optim::ParameterState* const> parameters,
              const optim::StepScalars&) override {
    const NoGradGuard no_recording;
    for (optim::ParameterState* each : parameters) each->state[0].add_(each->parameter.grad());
  }
};

TEST(OptimizerState, OfStepsThatNobodyCountedIsNotLeftOutSilently) {
  const Pair pair;
  Uncounted optimizer(pair.named());
  EXPECT_NO_THROW(optimizer.state_dict());
  optimizer.step();
  EXPECT_THROW(optimizer.state_dict(), InvalidArgument);
}

TEST(LRScheduler, HasAScheduleOfItsOwnForEachGroup) {
  const Pair pair;
  AdamW optimizer(AdamW::Groups{{NamedTensors{{"w", pair.weight}}, {.lr = 0.8}},
                                {NamedTensors{{"b", pair.bias}}, {.lr = 0.8}}});
  optim::LRScheduler scheduler(
      optimizer, std::vector<optim::Schedule>{optim::ExponentialLR{.gamma = 0.5}, {}});
  scheduler.step();
  EXPECT_EQ(optimizer.lr(0), 0.4);
  EXPECT_EQ(optimizer.lr(1), 0.8);
  EXPECT_THROW(optim::LRScheduler(optimizer, std::vector<optim::Schedule>{optim::ExponentialLR{}}),
               InvalidArgument);
}

TEST(OptimizerState, LetsASchedulerMadeAfterwardsStartFromTheBaseRate) {
  const Pair pair;
  const optim::Schedule halves = optim::ExponentialLR{.gamma = 0.5};
  AdamW first(pair.named(), {.lr = 0.8});
  optim::LRScheduler scheduler(first, halves);
  scheduler.step();
  scheduler.step();
  EXPECT_EQ(first.lr(), 0.2);
  AdamW second(pair.named(), {.lr = 0.3});
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.lr(), 0.2);
  optim::LRScheduler resumed(second, halves);
  resumed.set_steps(scheduler.steps());
  EXPECT_EQ(second.lr(), 0.2);
}

TEST(Optimizer, ListsItsOptionsByName) {
  const Pair pair;
  const optim::SGD optimizer(pair.named(), {.lr = 0.5, .momentum = 0.9, .nesterov = true});
  using Option = std::pair<std::string_view, double>;
  EXPECT_THAT(optimizer.named_options(),
              ElementsAre(Option{"lr", 0.5}, Option{"momentum", 0.9}, Option{"dampening", 0},
                          Option{"weight_decay", 0}, Option{"nesterov", 1}, Option{"maximize", 0},
                          Option{"master_weights", 1}));
}

TEST(Optimizer, TakesEmptyGroupsBesideOthers) {
  const Pair pair;
  AdamW optimizer(AdamW::Groups{{NamedTensors{}, {.lr = 0.5}}, {pair.named()}});
  optimizer.step();
  AdamW other(AdamW::Groups{{pair.named()}, {NamedTensors{}}});
  other.load_state_dict(optimizer.state_dict());
  EXPECT_THROW(AdamW(AdamW::Groups{{NamedTensors{}}}), InvalidArgument);
}

TEST(OptimizerState, LetsASchedulerMadeBeforeALoadGoOnFromTheLoadedRate) {
  const Pair pair;
  const optim::Schedule halves = optim::ExponentialLR{.gamma = 0.5};
  AdamW first(pair.named(), {.lr = 0.8});
  optim::LRScheduler scheduler(first, halves);
  scheduler.step();
  AdamW second(pair.named(), {.lr = 0.3});
  optim::LRScheduler resumed(second, halves);
  second.load_state_dict(first.state_dict());
  resumed.set_steps(scheduler.steps());
  EXPECT_EQ(second.lr(), 0.4);
}

TEST(OptimizerState, KnowsAParameterByANameLikeThatOfTheKind) {
  const Pair pair;
  const NamedTensors named{{"groups.kind.weight", pair.weight}, {"bias", pair.bias}};
  AdamW first(named), second(named);
  first.step();
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(value_of(second.state_dict(), "groups.kind.weight.step").item(), 1);
}

/// An optimizer of somebody's own, with states of these names.
struct Named final : optim::OptimizerWith<optim::SGDOptions> {
  Named(const optim::ParameterList& parameters, std::vector<std::string_view> states)
      : OptimizerWith(Groups{{parameters, {}}}), names(std::move(states)) {}
  optim::StateNames state_names(std::size_t, const Tensor&) const override { return names; }
  void update(std::size_t, std::span<optim::ParameterState* const> parameters,
              const optim::StepScalars&) override {
    const NoGradGuard no_recording;
    for (optim::ParameterState* each : parameters) {
      for (std::size_t k = 0; k < names.size(); ++k) each->state[k].add_(each->parameter.grad());
      each->counter.slice(0, 0, 1).add_(1);
    }
  }
  std::vector<std::string_view> names;
};

TEST(OptimizerState, OfAnOwnClassHasUpToFourNamesOfItsOwn) {
  const Pair pair;
  Named four(pair.named(), {"m", "v", "n", "former"});
  four.step();
  const NamedTensors state = four.state_dict();
  Named again(pair.named(), four.names);
  again.load_state_dict(state);
  EXPECT_TRUE(equal(value_of(again.state_dict(), "fc.weight.former"), pair.weight.grad()));
  for (const auto& names : std::vector<std::vector<std::string_view>>{
           {"a", "b", "c", "d", "e"}, {"a", "a"}, {"step"}, {"group"}, {"master"}}) {
    Named refused(pair.named(), names);
    EXPECT_THROW(refused.step(), InvalidArgument) << names.back();
  }
}

}  // namespace
}  // namespace lockstep
