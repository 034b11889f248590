#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/all_optimizers.hpp"
#include "support/place.hpp"

namespace lockstep {
namespace {

using optim::Optimizer;

/// bf16 and f16 parameters on every backend.
class HalfPrecisionOptimizer : public ::testing::TestWithParam<std::tuple<testing::Place, DType>> {
 protected:
  void SetUp() override {
    if (testing::is_missing(place)) GTEST_SKIP() << "no CUDA device on this machine";
  }

  testing::Place place = std::get<0>(GetParam());
  DType dtype = std::get<1>(GetParam());
  testing::PlaceScope scope{place};

  Tensor half(const Tensor& x) const { return x.to(place.device, dtype); }
  Tensor random(const Shape& shape) { return half(randn(shape, {}, generator_)); }
  static double state_of(const Optimizer& optimizer, std::string_view key) {
    for (const auto& [name, tensor] : optimizer.state_dict())
      if (name == key) {
        EXPECT_EQ(tensor.dtype(), DType::f32) << key;
        return tensor.to(cpu).reshape({-1}).slice(0, 0, 1).item();
      }
    ADD_FAILURE() << key << " is not there";
    return 0;
  }

 private:
  Generator generator_{7};
};

// An odd length, so that no kernel gets away with whole vectors.
constexpr std::int64_t odd_length = 4099;

TEST_P(HalfPrecisionOptimizer, TrainsAsMasterWeightsInF32Do) {
  for (const auto& each : testing::all_optimizers()) {
    // Steps that are too small for the parameter.
    auto options = each.options;
    options["lr"] = each.options["lr"].get<double>() / 500;
    const Tensor start = random({odd_length});
    Tensor narrow = start.clone().set_requires_grad();
    Tensor wide = start.to(DType::f32).set_requires_grad();
    const auto first = each.make_groups({{std::vector{narrow}, options}});
    const auto second = each.make_groups({{std::vector{wide}, options}});
    for (int step = 0; step < 25; ++step) {
      const Tensor gradient = random({odd_length});
      narrow.set_grad(gradient);
      wide.set_grad(gradient.to(DType::f32));
      first->step();
      second->step();
      ASSERT_TRUE(equal(narrow.detach(), wide.detach().to(dtype)))
          << each.name << ", step " << step;
    }
    EXPECT_FALSE(equal(narrow.detach(), start)) << each.name;
  }
}

TEST_P(HalfPrecisionOptimizer, KeepsItsSecondMomentMoving) {
  Tensor x = half(ones({64})).set_requires_grad();
  optim::AdamW optimizer({x}, {.lr = 1e-5});
  double expected = 0;
  for (int step = 0; step < 2000; ++step) {
    x.set_grad(half(full({64}, 0.5)));
    optimizer.step();
    expected += 0.001 * (0.25 - expected);
  }
  EXPECT_NEAR(state_of(optimizer, "0.exp_avg_sq"), expected, 1e-3 * expected);
}

TEST_P(HalfPrecisionOptimizer, SumsStepsThatAreEachTooSmallForTheParameter) {
  Tensor x = half(ones({64})).set_requires_grad();
  optim::SGD optimizer({x}, {.lr = 1e-4});
  for (int step = 0; step < 1000; ++step) {
    x.set_grad(half(ones({64})));
    optimizer.step();
  }
  EXPECT_NEAR(x.detach().to(cpu).slice(0, 0, 1).item(), 0.9, 0.004);
}

TEST_P(HalfPrecisionOptimizer, GoesWithoutMasterWeightsWhereAsked) {
  Tensor x = half(ones({8})).set_requires_grad();
  optim::AdamW optimizer({x}, {.lr = 0.125, .master_weights = false});
  x.set_grad(half(ones({8})));
  optimizer.step();
  EXPECT_NEAR(x.detach().to(cpu).slice(0, 0, 1).item(), 0.875, 0.01);
  for (const auto& [name, tensor] : optimizer.state_dict()) EXPECT_NE(name, "0.master");
  state_of(optimizer, "0.exp_avg");
}

TEST_P(HalfPrecisionOptimizer, TakesOverValuesThatWereWrittenBetweenSteps) {
  Tensor x = half(ones({2})).set_requires_grad();
  optim::SGD optimizer({x}, {.lr = 1e-4});
  const auto step = [&] {
    x.set_grad(half(ones({2})));
    optimizer.step();
  };
  for (int i = 0; i < 10; ++i) step();
  {
    const NoGradGuard no_recording;
    x.slice(0, 1, 2).fill_(4.0);
  }
  step();
  // The untouched element goes on from its master copy, the other from what was written.
  const auto master = optimizer.state_dict().at(2);
  ASSERT_EQ(master.first, "0.master");
  const auto values = master.second.to_vector<float>();
  EXPECT_NEAR(values[0], 1 - 11e-4, 1e-6);
  EXPECT_NEAR(values[1], 4 - 1e-4, 1e-6);
}

// Another thread may read the state between a write to a parameter and the end of a step.
TEST_P(HalfPrecisionOptimizer, IsNotChangedByReadingItsState) {
  Tensor x = half(ones({2})).set_requires_grad();
  optim::AdamW optimizer({x}, {.lr = 0.001});
  x.set_grad(half(ones({2})));
  optimizer.step();
  Tensor master;
  for (const auto& [name, tensor] : optimizer.state_dict())
    if (name == "0.master") master = tensor;
  const Tensor before = master.clone();
  no_grad([&] { x.mul_(2.0); });
  EXPECT_NEAR(state_of(optimizer, "0.master"), 2, 0.02);
  EXPECT_TRUE(equal(master, before));
}

TEST_P(HalfPrecisionOptimizer, GoesOnFromItsSavedState) {
  const auto run = [this](Tensor x, Optimizer& optimizer, int from, int to) {
    for (int i = from; i < to; ++i) {
      x.set_grad(half(full({5}, 0.25 + 0.01 * i)));
      optimizer.step();
    }
  };
  Tensor a = half(ones({5})).set_requires_grad(), b = half(ones({5})).set_requires_grad();
  optim::AdamW whole({a}, {.lr = 1e-4}), first({b}, {.lr = 1e-4}), second({b}, {.lr = 0.5});
  run(a, whole, 0, 30);
  run(b, first, 0, 15);
  NamedTensors state = first.state_dict();
  for (auto& [name, value] : state) value = value.to(cpu);
  second.load_state_dict(state);
  run(b, second, 15, 30);
  EXPECT_TRUE(equal(a.detach(), b.detach()));
  EXPECT_EQ(state_of(whole, "0.master"), state_of(second, "0.master"));
}

INSTANTIATE_TEST_SUITE_P(Places, HalfPrecisionOptimizer,
                         ::testing::Combine(::testing::ValuesIn(testing::places()),
                                            ::testing::Values(DType::bf16, DType::f16)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).backend) + "_" +
                                  std::string(name(std::get<1>(each.param)));
                         });

TEST(HalfPrecision, StatesGoOnInParametersOfOtherBits) {
  for (const DType before : {DType::bf16, DType::f32}) {
    const DType after = before == DType::bf16 ? DType::f32 : DType::bf16;
    Tensor x = ones({3}, {before}).set_requires_grad(), y = ones({3}, {after}).set_requires_grad();
    optim::AdamW first({x}, {.lr = 0.1}), second({y}, {.lr = 0.1});
    x.set_grad(ones({3}, {before}));
    first.step();
    EXPECT_THAT(second.load_matching_state(first.state_dict()), ::testing::IsEmpty());
    const optim::ParameterState& state = second.parameter_states()[0];
    EXPECT_EQ(state.counter.to_vector<std::int64_t>()[0], 1);
    EXPECT_TRUE(allclose(state.state[0], full({3}, 0.1), 1e-5));
    EXPECT_EQ(state.master.defined(), after == DType::bf16);
    y.set_grad(ones({3}, {after}));
    second.step();
  }
}

}  // namespace
}  // namespace lockstep
