#include <cmath>
#include <fstream>
#include <limits>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::expect_close;

Tensor leaf(std::initializer_list<double> values, std::initializer_list<double> gradient = {}) {
  Tensor x = tensor<double>(values).set_requires_grad();
  if (gradient.size()) x.set_grad(tensor<double>(gradient));
  return x;
}

TEST(Optimizer, SkipsParametersWithoutGradientAndTheirSteps) {
  const Tensor a = leaf({1.0}, {1.0}), b = leaf({1.0});
  optim::Adam optimizer({a, b}, {.lr = 0.1});
  optimizer.step();
  EXPECT_NEAR(a.item(), 0.9, 1e-7);
  EXPECT_EQ(b.item(), 1.0);
  // b's first step is corrected as a first step, though a is at its second.
  Tensor(b).set_grad(tensor<double>({1.0}));
  optimizer.step();
  EXPECT_NEAR(a.item(), 0.8, 1e-7);
  EXPECT_NEAR(b.item(), 0.9, 1e-7);
}

TEST(Optimizer, GivesEveryGroupItsOptions) {
  const Tensor a = leaf({1.0}, {1.0}), b = leaf({1.0}, {1.0});
  optim::SGD optimizer(optim::SGD::Groups{{{a}, {.lr = 0.1}}, {{b}, {.lr = 0.5}}});
  optimizer.step();
  EXPECT_DOUBLE_EQ(a.item(), 0.9);
  EXPECT_DOUBLE_EQ(b.item(), 0.5);
  optimizer.set_lr(0.25, 1);
  EXPECT_EQ(optimizer.lr(0), 0.1);
  EXPECT_EQ(optimizer.lr(1), 0.25);
  EXPECT_THROW(optimizer.lr(2), InvalidArgument);
}

constexpr double toward[] = {0.0, 1.0, 2.0};

TEST(Optimizers, RefuseParametersThatShareMemoryOrNames) {
  const Tensor memory = zeros({12});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return memory.slice(0, begin, end).set_requires_grad();
  };
  const auto refused = [](const Tensor& a, const Tensor& b) {
    return testing::refusal([&] { return optim::SGD({a, b}, {.lr = 0.1}).parameters().size(); });
  };
  EXPECT_EQ(refused(part(0, 4), part(4, 8)), "accepted");
  EXPECT_EQ(refused(part(4, 8), part(0, 4)), "accepted");
  for (const auto& [begin, end] : {std::pair{4, 8}, {2, 5}, {7, 9}, {0, 12}, {5, 6}})
    EXPECT_THAT(refused(part(4, 8), part(begin, end)), ::testing::HasSubstr("shares memory"));
  const Tensor nothing = zeros({0}).set_requires_grad();
  EXPECT_EQ(refused(nothing, zeros({0}).set_requires_grad()), "accepted");
  EXPECT_THAT(refused(nothing, nothing), ::testing::HasSubstr("given twice"));
  const auto group = [](std::string name, const Tensor& parameter) {
    return NamedTensors{{std::move(name), parameter}};
  };
  optim::SGD sgd(NamedTensors{{"a", part(0, 4)}, {"b", part(4, 8)}}, {.lr = 0.1});
  EXPECT_THAT(testing::refusal([&] {
                sgd.add_param_group({group("c", part(7, 9)), {.lr = 0.1}});
              }),
              ::testing::HasSubstr("in groups 0 and 1"));
  EXPECT_THAT(testing::refusal([&] {
                sgd.add_param_group({group("a", part(8, 9)), {.lr = 0.1}});
              }),
              ::testing::HasSubstr("two parameters of the name"));
  sgd.add_param_group({group("c", part(8, 9)), {.lr = 0.1}});
}

/// Six steps of two parameters, of which the second one is trained from the fourth on: it is in a
/// group from the beginning, but has no gradients, or is added then.
template <class Kind, class... Rest>
NamedTensors with_a_group_added(bool adds, const Rest&... rest) {
  const Tensor a = full({4, 4}, 1.0).set_requires_grad();
  const Tensor b = full({4, 4}, 2.0).set_requires_grad();
  using Options = typename Kind::Options;
  const optim::ParameterGroup<Options> first{NamedTensors{{"a", a}}, Options{.lr = 0.1}};
  const optim::ParameterGroup<Options> second{NamedTensors{{"b", b}}, Options{.lr = 0.01}};
  typename Kind::Groups groups{first};
  if (!adds) groups.push_back(second);
  Kind optimizer(groups, rest...);
  for (int i = 0; i < 6; ++i) {
    if (adds && i == 3) optimizer.add_param_group(second);
    Tensor(a).set_grad(a.detach() + toward[i % 3]);
    if (i >= 3) Tensor(b).set_grad(b.detach() - toward[i % 3]);
    optimizer.step();
  }
  NamedTensors all = optimizer.state_dict();
  all.emplace_back("a", a.detach());
  all.emplace_back("b", b.detach());
  return all;
}

template <class Kind>
void expect_group_added_goes_on_as_one_from_the_beginning() {
  const NamedTensors added = with_a_group_added<Kind>(true);
  const NamedTensors there = with_a_group_added<Kind>(false);
  ASSERT_EQ(added.size(), there.size());
  for (std::size_t i = 0; i < added.size(); ++i) {
    EXPECT_EQ(added[i].first, there[i].first);
    EXPECT_TRUE(equal(added[i].second, there[i].second)) << added[i].first;
  }
}

TEST(Optimizer, TakesAGroupBetweenSteps) {
  expect_group_added_goes_on_as_one_from_the_beginning<optim::AdamW>();
  expect_group_added_goes_on_as_one_from_the_beginning<optim::SGD>();
  expect_group_added_goes_on_as_one_from_the_beginning<optim::LAMB>();
  expect_group_added_goes_on_as_one_from_the_beginning<optim::Muon>();
}

TEST(Optimizer, TakesAWholeGroupOrNothing) {
  const Tensor a = ones({2}).set_requires_grad(), b = ones({2}).set_requires_grad();
  optim::AdamW optimizer({{{a}, {.lr = 0.1}}});
  EXPECT_THROW(optimizer.add_param_group({{b}, {.lr = -1}}), InvalidArgument);
  EXPECT_THROW(optimizer.add_param_group({{b, a}, {.lr = 0.2}}), InvalidArgument);
  EXPECT_THROW(optimizer.add_param_group({{b, b * 2.0}, {.lr = 0.2}}), InvalidArgument);
  EXPECT_EQ(optimizer.group_count(), 1U);
  EXPECT_EQ(optimizer.parameters().size(), 1U);
  EXPECT_THROW(optimizer.options(1), InvalidArgument);
  optim::LRScheduler scheduler(optimizer, optim::CosineAnnealingLR{.iterations = 2});
  optimizer.add_param_group({{b}, {.lr = 0.2}});
  scheduler.step();
  EXPECT_NEAR(optimizer.lr(0), 0.05, 1e-12);
  EXPECT_EQ(optimizer.lr(1), 0.2);  // the schedule was made for the groups before
}

TEST(Optimizer, CallsItsHooksWhenAStepIsDone) {
  const Tensor a = leaf({1.0}, {1.0});
  optim::SGD optimizer({a}, {.lr = 0.5});
  std::vector<double> seen;
  const auto hook = optimizer.register_step_post_hook([&] { seen.push_back(a.item()); });
  optimizer.step();
  optimizer.zero_grad();
  optimizer.step();  // without gradients
  optimizer.remove_step_post_hook(hook);
  optimizer.step();
  EXPECT_EQ(seen, (std::vector{0.5, 0.5}));
  EXPECT_TRUE(optimizer.parameter_states()[0].parameter.is_same(a));
}

TEST(Optimizer, CallsAHookThatRemovesItselfOnceAndThoseBesideIt) {
  const Tensor a = leaf({1.0}, {1.0});
  optim::SGD optimizer({a}, {.lr = 0.5});
  const std::string name = "a name that does not lie within the function";
  std::vector<std::string> calls;
  std::uint64_t hook = 0;
  hook = optimizer.register_step_post_hook([&, name] {
    optimizer.remove_step_post_hook(hook);
    calls.push_back(name);
  });
  optimizer.register_step_post_hook([&] { calls.emplace_back("second"); });
  optimizer.step();
  optimizer.step();
  EXPECT_EQ(calls, (std::vector<std::string>{name, "second", "second"}));
}

TEST(Optimizer, CallsNoHookThatAnotherHasRemoved) {
  const Tensor a = leaf({1.0}, {1.0});
  optim::SGD optimizer({a}, {.lr = 0.5});
  int calls = 0;
  std::uint64_t second = 0;
  optimizer.register_step_post_hook([&] { optimizer.remove_step_post_hook(second); });
  second = optimizer.register_step_post_hook([&] { ++calls; });
  optimizer.step();
  EXPECT_EQ(calls, 0);
}

TEST(Optimizer, ClipsAGradientThatTwoParametersHaveOnce) {
  Tensor a = leaf({1.0, 1.0}, {3.0, 4.0}), b = leaf({1.0, 1.0}, {0.0, 0.0});
  b.set_grad(a.grad());
  for (const double p : {1.0, 2.0, 3.0}) {
    Tensor(a.grad()).copy_(tensor<double>({3.0, 4.0}));
    const double norm = optim::clip_grad_norm_(std::array{a, b}, 1.0, {.norm_type = p}).item();
    EXPECT_NEAR(norm, std::pow(std::pow(3.0, p) + std::pow(4.0, p), 1 / p), 1e-9);
    EXPECT_NEAR(a.grad().to_vector<double>()[0], 3.0 / norm, 1e-5);
  }
}

TEST(Optimizer, ClearsGradients) {
  const Tensor a = leaf({1.0}, {1.0});
  optim::SGD optimizer({a});
  optimizer.zero_grad(false);
  EXPECT_EQ(a.grad().item(), 0.0);
  optimizer.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optimizer, RefusesParametersItCannotChange) {
  const Tensor a = leaf({1.0});
  EXPECT_THROW(optim::SGD(std::vector<Tensor>{}), InvalidArgument);
  EXPECT_THROW(optim::SGD({a, a}), InvalidArgument);
  EXPECT_THROW(optim::SGD({a * 2.0}), InvalidArgument);
  EXPECT_THROW(optim::SGD({arange(3)}), InvalidArgument);
}

TEST(Optimizer, RefusesOptionsOutOfRange) {
  const std::vector<Tensor> a{leaf({1.0})};
  EXPECT_THROW(optim::SGD(a, {.lr = -1}), InvalidArgument);
  EXPECT_THROW(optim::AdamW(a, {.lr = std::numeric_limits<double>::infinity()}), InvalidArgument);
  EXPECT_THROW(optim::SGD(a, {.nesterov = true}), InvalidArgument);
  EXPECT_THROW(optim::Adam(a, {.beta1 = 1.0}), InvalidArgument);
  EXPECT_THROW(optim::AdamW(a, {.weight_decay = -0.1}), InvalidArgument);
}

TEST(Optimizer, MakesBackwardNoticeThatAParameterChanged) {
  const Tensor a = leaf({2.0}, {1.0});
  const Tensor y = a * a;
  optim::SGD({a}).step();
  EXPECT_THROW(y.backward(), InvalidArgument);
}

void expect_to_go_on_from_saved_state(Device device) {
  const auto run = [](optim::AdamW& optimizer, const Tensor& x, int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      sum(x * x * x).backward();
      optimizer.step();
    }
  };
  const auto on_device = [&] { return tensor<double>({1.0, -2.0}).to(device).set_requires_grad(); };
  const Tensor a = on_device(), b = on_device();
  optim::AdamW whole({a}, {.lr = 0.1}), first({b}, {.lr = 0.1});
  run(whole, a, 6);
  run(first, b, 3);
  optim::AdamW second({b}, {.lr = 0.1});
  // As a checkpoint has it: on the CPU.
  NamedTensors state = first.state_dict();
  for (auto& [name, value] : state) value = value.to(cpu);
  second.load_state_dict(state);
  run(second, b, 3);
  EXPECT_TRUE(equal(a.to(cpu), b.to(cpu)));
}

TEST(Optimizer, GoesOnFromItsSavedState) { expect_to_go_on_from_saved_state(cpu); }

TEST(Optimizer, RefusesParametersThatShareMemory) {
  const Tensor a = zeros({4});
  const Tensor front = a.slice(0, 0, 3).detach().set_requires_grad();
  const Tensor back = a.slice(0, 2, 4).detach().set_requires_grad();
  EXPECT_THROW(optim::SGD({front, back}), InvalidArgument);
  const Tensor rest = a.slice(0, 3, 4).detach().set_requires_grad();
  optim::SGD({front, rest});
}

TEST(Optimizer, RefusesANegativeRateAndKeepsTheFormer) {
  optim::AdamW optimizer({leaf({1.0})}, {.lr = 0.1});
  EXPECT_THROW(optimizer.set_lr(-1.0), InvalidArgument);
  EXPECT_THROW(optimizer.set_lr(std::numeric_limits<double>::quiet_NaN(), 0), InvalidArgument);
  EXPECT_EQ(optimizer.lr(), 0.1);
}

TEST(Optimizer, LeavesFrozenParametersAloneAndGoesOnWhenTheyThaw) {
  Tensor a = leaf({1.0}, {1.0});
  optim::SGD optimizer({a}, {.lr = 0.1, .momentum = 0.5});
  optimizer.step();
  EXPECT_DOUBLE_EQ(a.item(), 0.9);
  a.set_requires_grad(false);
  optimizer.step();
  optimizer.zero_grad();
  EXPECT_DOUBLE_EQ(a.item(), 0.9);
  a.set_requires_grad();
  a.set_grad(tensor<double>({1.0}));
  optimizer.step();
  EXPECT_DOUBLE_EQ(a.item(), 0.9 - 0.1 * 1.5);
}

TEST(Optimizer, TakesZeroSizedParameters) {
  Tensor none = zeros({0, 3}).set_requires_grad(), one = leaf({1.0}, {1.0});
  none.set_grad(zeros({0, 3}));
  optim::AdamW optimizer({none, one});
  optimizer.step();
  optimizer.load_state_dict(optimizer.state_dict());
  optimizer.step();
  EXPECT_LT(one.item(), 1.0);
}

/// A step, a move of the parameter's data to another place, a step.
void expect_state_to_follow(TensorOptions from, TensorOptions to, double tolerance) {
  const auto run = [](Tensor x, optim::Optimizer& optimizer) {
    x.set_grad(full(x.shape(), 0.5, x.options()));
    optimizer.step();
  };
  Tensor moved = full({5}, 1.0, from).set_requires_grad(), stays = full({5}, 1.0, from);
  stays.set_requires_grad();
  optim::AdamW first({moved}, {.lr = 1e-3}), second({stays}, {.lr = 1e-3});
  run(moved, first);
  run(stays, second);
  moved.set_data(moved.detach().to(to.device, to.dtype));
  const NamedTensors state = first.state_dict();
  EXPECT_EQ(state.at(2).second.device(), to.device);
  run(moved, first);
  run(stays, second);
  expect_close(moved.detach(), stays.detach().to(cpu, DType::f64), tolerance);
}

TEST(Optimizer, LetsItsStateFollowAConvertedModule) {
  expect_state_to_follow({DType::f32}, {DType::f64}, 1e-6);
  expect_state_to_follow({DType::f64}, {DType::f32}, 1e-6);
  expect_state_to_follow({DType::f32}, {DType::bf16}, 1e-2);
  expect_state_to_follow({DType::bf16}, {DType::f32}, 1e-2);
  expect_state_to_follow({DType::bf16}, {DType::f16}, 1e-2);
}

TEST(Optimizer, RefusesAParameterThatBecameOfAnotherShape) {
  Tensor x = leaf({1.0}, {1.0});
  optim::AdamW optimizer({x});
  optimizer.step();
  x.set_grad({});
  x.set_data(zeros({3}, {DType::f64}));
  x.set_grad(ones({3}, {DType::f64}));
  EXPECT_THROW(optimizer.step(), InvalidArgument);
}

void expect_clipping_as_pytorchs(Device device) {
  std::ifstream in(testing::golden_dir() / "schedules.json");
  const auto file = io::SafetensorsFile::open(testing::golden_dir() / "optimizers.safetensors");
  const json golden = json::parse(in);
  for (const json& item : golden.at("clip_grad_norm")) {
    const double norm_type = std::stod(item.at("norm_type").get<std::string>());
    std::vector<Tensor> parameters;
    for (const auto* name : {"grad.0.0", "grad.0.1"}) {
      parameters.push_back(zeros(file.entry(name).shape, {DType::f64, device}));
      parameters.back().set_requires_grad().set_grad(file.tensor(name).to(device));
    }
    parameters.push_back(leaf({1.0}));  // has no gradient
    const Tensor norm =
        optim::clip_grad_norm_(parameters, item.at("max_norm"), {.norm_type = norm_type});
    EXPECT_NEAR(norm.item(), item.at("total_norm").get<double>(), 1e-9);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(lockstep::norm(parameters[i].grad()).item(),
                  item.at("after_norms")[i].get<double>(), 1e-9);
  }
}

TEST(ClipGradNorm, TakesAnyNorm) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [p, norm] : {std::pair{1.0, 19.0},
                                {3.0, std::cbrt(27.0 + 64 + 1728)},
                                {0.5, std::pow(std::sqrt(3.0) + 2 + std::sqrt(12.0), 2)},
                                {infinity, 12.0}}) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      Tensor x = tensor<double>({0, 0}).to(dtype).set_requires_grad();
      Tensor y = tensor<double>({0}).to(dtype).set_requires_grad();
      Tensor none = zeros({0}, dtype).set_requires_grad();
      x.set_grad(tensor<double>({3.0, -4.0}).to(dtype));
      y.set_grad(tensor<double>({-12.0}).to(dtype));
      none.set_grad(zeros({0}, dtype));
      EXPECT_NEAR(optim::clip_grad_norm_({x, y, none}, norm / 2, {.norm_type = p}).item(), norm,
                  1e-12 * norm);
      EXPECT_NEAR(y.grad().item(), -6.0, 1e-2) << p << dtype;
      EXPECT_NEAR(x.grad()[0].item(), 1.5, 1e-2) << p << dtype;
    }
  }
  EXPECT_THROW(optim::clip_grad_norm_({leaf({1.0})}, 1.0, {.norm_type = 0}), InvalidArgument);
  EXPECT_THROW(optim::clip_grad_norm_({leaf({1.0})}, 1.0, {.norm_type = std::nan("")}),
               InvalidArgument);
}

// Powers of these are beyond f64's range.
TEST(ClipGradNorm, TakesAnyNormOfLargeAndSmallGradients) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double size : {1e120, 1e200, 1e-200, 1e-9})
    for (const double p : {0.5, 1.0, 3.0, 7.0, 40.0}) {
      const Tensor x = leaf({0.0, 0.0}, {size, -size});
      const double norm = size * std::pow(2.0, 1 / p);
      EXPECT_NEAR(optim::clip_grad_norm_({x}, size / 2, {.norm_type = p}).item(), norm,
                  1e-12 * norm)
          << size << ' ' << p;
      // Clipping divides by the norm + 1e-6.
      if (size > 1.0) {
        EXPECT_NEAR(x.grad()[0].item(), size / norm * (size / 2), 1e-9 * size) << p;
      }
    }
  for (const double value : {infinity, std::nan("")}) {
    const Tensor x = leaf({0.0, 0.0}, {value, 1.0});
    const double norm = optim::clip_grad_norm_({x}, 1.0, {.norm_type = 3}).item();
    EXPECT_TRUE(std::isnan(value) ? std::isnan(norm) : norm == infinity) << value;
  }
  EXPECT_EQ(optim::clip_grad_norm_({leaf({0.0}, {0.0})}, 1.0, {.norm_type = 3}).item(), 0.0);
}

// As a weight that two modules share, each of which lists it.
TEST(ClipGradNorm, CountsAndScalesAParameterOnceThatIsListedTwice) {
  const Tensor x = leaf({0.0, 0.0}, {3.0, 4.0}), y = leaf({0.0}, {12.0});
  const Tensor norm = optim::clip_grad_norm_(std::vector{x, y, x}, 6.5);
  EXPECT_DOUBLE_EQ(norm.item(), 13.0);
  EXPECT_NEAR(lockstep::norm(x.grad()).item(), 2.5, 1e-6);
  EXPECT_NEAR(y.grad().item(), 6.0, 1e-6);
}

TEST(GoldenClipGradNorm, MatchesPytorch) { expect_clipping_as_pytorchs(cpu); }

class OptimizersOnGpu : public testing::OnGpu {};

TEST_F(OptimizersOnGpu, GoOnFromTheirSavedState) { expect_to_go_on_from_saved_state(device); }
TEST_F(OptimizersOnGpu, LetTheirStateFollowAMovedModule) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_state_to_follow({dtype, cpu}, {dtype, device}, 1e-2);
    expect_state_to_follow({dtype, device}, {dtype, cpu}, 1e-2);
  }
}
TEST_F(OptimizersOnGpu, ClipAsPytorchInTheGoldenFile) { expect_clipping_as_pytorchs(device); }

TEST_F(OptimizersOnGpu, ClipInF64WhateverTheDtype) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = zeros({1 << 16}, {dtype, device}).set_requires_grad();
    Tensor(x).set_grad(full({1 << 16}, 0.0078125, {dtype, device}));
    EXPECT_NEAR(optim::clip_grad_norm_({x}, 1.0).item(), 2.0, 1e-9) << dtype;
    EXPECT_NEAR(norm(x.grad().to(cpu, DType::f64)).item(), 1.0, 1e-2) << dtype;
  }
}

TEST(ClipGradNorm, SumsInF64WhateverTheDtype) {
  Tensor x = zeros({1 << 20}).set_requires_grad();
  x.set_grad(full({1 << 20}, 1e-3));
  EXPECT_NEAR(optim::clip_grad_norm_({x}, 10.0).item(), 1.024 * 1.0, 1e-6);
  EXPECT_EQ(optim::clip_grad_norm_({leaf({1.0})}, 1.0).item(), 0.0);
  EXPECT_THROW(optim::clip_grad_norm_({x}, -1.0), InvalidArgument);
}

TEST(ClipGradNorm, ThrowsBeforeScalingByANormThatIsNotFiniteIfItIsTold) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Tensor x = leaf({1.0, 2.0}, {3.0, bad});
    EXPECT_THROW(optim::clip_grad_norm_({x}, 1.0, {.error_if_nonfinite = true}), Error);
    EXPECT_EQ(x.grad()[0].item(), 3.0);
  }
  const Tensor x = leaf({1.0}, {3.0});
  EXPECT_EQ(optim::clip_grad_norm_({x}, 1.0, {.error_if_nonfinite = true}).item(), 3.0);
}

}  // namespace
}  // namespace lockstep
