#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/all_optimizers.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"

// What holds of every optimizer.

namespace lockstep {
namespace {

using testing::AnyOptimizer;
using ::testing::HasSubstr;

class EveryOptimizer : public ::testing::TestWithParam<std::tuple<testing::Place, std::size_t>> {
 protected:
  void SetUp() override {
    if (testing::is_missing(place)) GTEST_SKIP() << "no CUDA device on this machine";
  }

  testing::Place place = std::get<0>(GetParam());
  testing::PlaceScope scope{place};
  const AnyOptimizer& made = testing::all_optimizers()[std::get<1>(GetParam())];

  /// A matrix and a vector, odd in size.
  std::vector<std::pair<std::string, Tensor>> model(DType dtype = DType::f64) const {
    Generator generator(3);
    NamedTensors named{{"weight", randn({5, 3}, {}, generator)},
                       {"bias", randn({7}, {}, generator)}};
    for (auto& [name, parameter] : named)
      parameter = parameter.to(place.device, dtype).clone().set_requires_grad();
    return named;
  }
  static Tensor loss(const NamedTensors& named) {
    Tensor total = zeros({}, named[0].second.options());
    double target = 1.0;
    for (const auto& [name, parameter] : named) {
      total = total + mean(square(parameter - target));
      target -= 1.5;
    }
    return total;
  }
  static void train(optim::Optimizer& optimizer, const NamedTensors& named, int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      loss(named).backward();
      optimizer.step();
    }
  }
  static void expect_same(const NamedTensors& a, const NamedTensors& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(equal(a[i].second.detach(), b[i].second.detach())) << a[i].first;
  }
};

TEST_P(EveryOptimizer, LowersALossInEveryDtype) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const NamedTensors named = model(dtype);
    const double before = loss(named).item();
    const auto optimizer = made.make(named);
    train(*optimizer, named, 12);
    EXPECT_LT(loss(named).item(), 0.95 * before) << dtype;
  }
}

// What is alike stays alike, wherever a kernel's blocks begin: at multiples of 32,768 elements.
TEST_P(EveryOptimizer, UpdatesParametersOfSeveralBlocksAlike) {
  Generator generator(5);
  const std::int64_t period = 64, times = 1100;
  const Tensor first = randn({1, period}, {}, generator),
               gradient = randn({1, period}, {}, generator);
  const auto repeated = [&](const Tensor& row) {
    return row.expand({times, period}).reshape({times * period}).to(place.device);
  };
  Tensor parameter = repeated(first).clone().set_requires_grad();
  const auto optimizer = made.make(NamedTensors{{"weight", parameter}});
  for (int i = 0; i < 3; ++i) {
    parameter.set_grad(repeated(gradient));
    optimizer->step();
  }
  const Tensor updated = parameter.detach().to(cpu).reshape({times, period});
  const Tensor row = updated.slice(0, 0, 1);
  EXPECT_FALSE(equal(row, first));
  EXPECT_TRUE(equal(updated, row.expand({times, period}).contiguous()));
}

TEST_P(EveryOptimizer, GoesOnFromItsSavedState) {
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const NamedTensors a = model(dtype), b = model(dtype);
    const auto whole = made.make(a), first = made.make(b), second = made.make(b);
    train(*whole, a, 9);
    train(*first, b, 5);
    // As a checkpoint has it: on the CPU.
    NamedTensors state = first->state_dict();
    for (auto& [name, value] : state) value = value.to(cpu);
    second->load_state_dict(state);
    train(*second, b, 4);
    expect_same(a, b);
    EXPECT_EQ(second->state_dict().size(), state.size());
  }
}

TEST_P(EveryOptimizer, GivesGroupsTheirOwnOptions) {
  const NamedTensors together = model(), apart = model();
  auto slow = made.options;
  slow["lr"] = made.options["lr"].get<double>() / 4;
  const NamedTensors weight{together[0]}, bias{together[1]};
  const auto both = made.make_groups({{weight, made.options}, {bias, slow}});
  const auto first = made.make_groups({{NamedTensors{apart[0]}, made.options}});
  const auto second = made.make_groups({{NamedTensors{apart[1]}, slow}});
  for (int step = 0; step < 3; ++step) {
    train(*both, together, 1);
    both->zero_grad();
    first->zero_grad();
    second->zero_grad();
    loss(apart).backward();
    first->step();
    second->step();
  }
  expect_same(together, apart);
  EXPECT_EQ(both->lr(1), slow["lr"]);
}

// A loop may be in the scope as a whole.
TEST_P(EveryOptimizer, StepsInTheDtypeOfItsStateUnderAutocastToo) {
  const NamedTensors plain = model(DType::f32), cast = model(DType::f32);
  const auto first = made.make(plain), second = made.make(cast);
  for (int step = 0; step < 3; ++step) {
    train(*first, plain, 1);
    second->zero_grad();
    loss(cast).backward();
    const amp::Autocast mixed(DType::bf16);
    second->step();
  }
  expect_same(plain, cast);
}

TEST_P(EveryOptimizer, TakesTheLossScaleOffAndSkipsStepsAsItIsTold) {
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const NamedTensors plain = model(dtype), scaled = model(dtype);
    const auto first = made.make(plain), second = made.make(scaled);
    const TensorOptions number{.dtype = DType::f64, .device = place.device};
    const optim::GradientScaling finite{
        .scale = full({}, 1024.0, number), .found_inf = zeros({}, number), .how = ""};
    const optim::GradientScaling infinite{
        .scale = finite.scale, .found_inf = ones({}, number), .how = ""};
    for (int step = 0; step < 4; ++step) {
      // The first step of all, and one in the midst, find gradients that are not finite.
      if (step % 2 == 0) {
        for (const auto& [name, parameter] : scaled)
          Tensor(parameter).set_grad(full(
              parameter.shape(), std::numeric_limits<double>::infinity(), parameter.options()));
        second->step(infinite);
      }
      train(*first, plain, 1);
      second->zero_grad();
      // A power of two: no dtype rounds it.
      (loss(scaled) * 1024.0).backward();
      second->step(finite);
    }
    expect_same(plain, scaled);
  }
}

TEST_P(EveryOptimizer, LeavesParametersWithoutGradientAlone) {
  const NamedTensors named = model();
  const auto optimizer = made.make(named);
  const Tensor before = named[1].second.detach().clone();
  Tensor(named[0].second).set_grad(ones({5, 3}, named[0].second.options()));
  optimizer->step();
  EXPECT_TRUE(equal(named[1].second.detach(), before));
  EXPECT_NE(named[0].second.detach().sum().item(), model()[0].second.detach().sum().item());
}

TEST_P(EveryOptimizer, TakesParametersWithoutElements) {
  NamedTensors named = model();
  named.insert(named.begin(),
               {"none", zeros({0, 3}, named[0].second.options()).set_requires_grad()});
  Tensor(named[0].second).set_grad(zeros({0, 3}, named[0].second.options()));
  const auto optimizer = made.make(named);
  optimizer->step();
  optimizer->load_state_dict(optimizer->state_dict());
}

TEST_P(EveryOptimizer, NamesAnOptionThatIsOutOfRange) {
  const NamedTensors named = model();
  const auto optimizer = made.make(named);
  for (const auto& [name, value] : optimizer->named_options()) {
    auto options = made.options;
    if (std::string_view("lr eps weight_decay").find(name) == std::string_view::npos &&
        !name.starts_with("beta"))
      continue;
    options[std::string(name)] = -0.5;
    try {
      made.make_groups({{named, options}});
      // A decay that grows less negative is what this one is about.
      EXPECT_EQ(name, "beta2_decay");
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(name)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Places, EveryOptimizer,
                         ::testing::Combine(::testing::ValuesIn(testing::places()),
                                            ::testing::Range(std::size_t{0},
                                                             testing::all_optimizers().size())),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).backend) + "_" +
                                  testing::all_optimizers()[std::get<1>(each.param)].name;
                         });

}  // namespace
}  // namespace lockstep
