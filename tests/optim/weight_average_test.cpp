#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using optim::WeightAverage;
using ::testing::HasSubstr;

class WeightAverages : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }
  testing::PlaceScope scope{GetParam()};
  Tensor filled(double value, std::int64_t count, DType dtype = DType::f64) const {
    return full({count}, value, {dtype, GetParam().device});
  }
  /// Every element of a tensor must be this.
  static void expect_all(const Tensor& x, double value, double tolerance = 1e-12) {
    for (const double each : x.detach().to(cpu, DType::f64).to_vector<double>())
      ASSERT_NEAR(each, value, tolerance);
  }
};

// The second takes several blocks and no whole vectors.
constexpr std::int64_t small = 3, large = 70'001;

TEST_P(WeightAverages, DecayExponentially) {
  Tensor a = filled(1.0, small), b = filled(10.0, large);
  WeightAverage average({a, b}, {.decay = 0.75});
  for (const double step : {0.0, 4.0, 8.0}) {
    a.fill_(1.0 + step);
    b.fill_(10.0 + step);
    average.update();
  }
  // 0, then 0.25 * 4, then 0.75 * 1 + 0.25 * 8.
  const NamedTensors state = average.state_dict();
  expect_all(state[0].second, 1.0 + 2.75);
  expect_all(state[1].second, 10.0 + 2.75);
}

TEST_P(WeightAverages, CountAllUpdatesAlikeWithoutDecay) {
  Tensor a = filled(0.0, large);
  WeightAverage average({a}, {.decay = std::nullopt});
  for (const double value : {1.0, 2.0, 6.0, 7.0}) {
    a.fill_(value);
    average.update();
  }
  expect_all(average.state_dict()[0].second, 4.0);
  EXPECT_EQ(average.updates(), 4);
}

// However far a value is from the average before.
TEST_P(WeightAverages, BecomeTheValueWhereNothingIsToBeLeftOfThem) {
  for (const auto& [decay, expected] : {std::pair(0.0, 1.0), std::pair(0.01, 1000000.99)}) {
    Tensor a = filled(0.0, large, DType::f32);
    WeightAverage average({a}, {.decay = decay});
    for (const double value : {1e8, 1.0}) {
      a.fill_(value);
      average.update();
    }
    expect_all(average.state_dict()[0].second, expected, expected * 1e-6);
  }
}

TEST_P(WeightAverages, OfHalfParametersAreWide) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    Tensor a = filled(1.0, large, dtype);
    WeightAverage average({a}, {.decay = 0.999});
    average.update();
    a.fill_(2.0);
    for (int i = 0; i < 10; ++i) average.update();
    const Tensor held = average.state_dict()[0].second;
    EXPECT_EQ(held.dtype(), DType::f32);
    expect_all(held, 2.0 - std::pow(0.999, 10), 1e-6);
  }
}

TEST_P(WeightAverages, AreSwappedInForAWhile) {
  for (const DType dtype : {DType::f64, DType::bf16}) {
    Tensor a = filled(1.0, small, dtype);
    WeightAverage average({a}, {.decay = 0.5});
    average.update();
    a.fill_(3.0);
    average.update();
    {
      const auto averaged = average.swap_in();
      expect_all(a, 2.0);
      EXPECT_THROW(average.update(), InvalidArgument);
      EXPECT_THROW(average.swap_in(), InvalidArgument);
    }
    expect_all(a, 3.0);
    average.update();
    expect_all(average.state_dict()[0].second, 2.5);
  }
}

TEST_P(WeightAverages, GiveWayWhicheverEndsFirst) {
  Tensor a = filled(1.0, small);
  auto average = std::make_optional<WeightAverage>(std::vector{a}, optim::WeightAverageOptions{});
  average->update();
  a.fill_(3.0);
  auto averaged = std::make_optional(average->swap_in());
  expect_all(a, 1.0);
  average.reset();
  averaged.reset();
  expect_all(a, 3.0);
}

TEST_P(WeightAverages, AreNotThoseOfAnother) {
  Tensor a = filled(1.0, small);
  WeightAverage average({a}), other({a}, {.decay = 0.5});
  average.update();
  other.update();
  a.fill_(3.0);
  {
    const auto averaged = average.swap_in();
    EXPECT_THROW(other.swap_in(), InvalidArgument);
    EXPECT_THROW(other.update(), InvalidArgument);
    EXPECT_THROW(other.check_not_swapped(), InvalidArgument);
  }
  expect_all(a, 3.0);
  const auto averaged = other.swap_in();
  expect_all(a, 1.0);
}

TEST(WeightAverage, KeepsValuesOffThatAreLoadedWhileItIsSwappedIn) {
  const auto layer = nn::make<nn::Linear>(2, 2);
  WeightAverage average(layer->named_parameters());
  average.update();
  const NamedTensors state = layer->state_dict();
  const auto averaged = average.swap_in();
  const std::string message = testing::refusal([&] { layer->load_state_dict(state); });
  EXPECT_NE(message.find("weight: holds its average"), std::string::npos) << message;
}

// Such a step would be lost with swap_out().
TEST_P(WeightAverages, KeepOptimizersOffWhileTheyAreSwappedIn) {
  Tensor a = filled(1.0, small).set_requires_grad(), b = filled(1.0, small).set_requires_grad();
  optim::SGD optimizer({a, b}, {.lr = 1}), other({b.detach().set_requires_grad()}, {.lr = 1});
  WeightAverage average({b});
  average.update();
  a.set_grad(filled(1.0, small));
  b.set_grad(filled(1.0, small));
  {
    const auto averaged = average.swap_in();
    const std::string message = testing::refusal([&] { optimizer.step(); });
    EXPECT_NE(message.find("holds its average"), std::string::npos) << message;
    EXPECT_THROW(other.step(), InvalidArgument) << "in the same memory";
    optim::SGD({a}, {.lr = 1}).step();
  }
  expect_all(a.detach(), 0.0);
  expect_all(b.detach(), 1.0);
  optimizer.step();
  expect_all(b.detach(), 0.0);
}

// What is swapped in and out again is no change by others to the optimizer's master copy.
TEST_P(WeightAverages, LeaveMasterCopiesTheirSmallSteps) {
  Tensor a = filled(1.0, small, DType::bf16).set_requires_grad();
  optim::SGD optimizer({a}, {.lr = 1e-4});
  WeightAverage average({a}, {.decay = 0.5});
  for (int step = 0; step < 100; ++step) {
    a.set_grad(filled(1.0, small, DType::bf16));
    optimizer.step();
    average.update();
    const auto averaged = average.swap_in();
  }
  EXPECT_NEAR(a.detach().to(cpu, DType::f64).to_vector<double>()[0], 0.99, 0.003);
}

TEST_P(WeightAverages, GoOnFromASavedState) {
  Tensor a = filled(1.0, small);
  const NamedTensors named{{"fc.weight", a}};
  WeightAverage first(named, {.decay = 0.5}), second(named, {.decay = 0.5});
  first.update();
  NamedTensors state = first.state_dict();
  for (auto& [name, value] : state) value = value.to(cpu);
  second.load_state_dict(state);
  a.fill_(3.0);
  second.update();
  expect_all(second.state_dict()[0].second, 2.0);
  EXPECT_EQ(second.updates(), 2);
  EXPECT_EQ(second.state_dict()[0].first, "fc.weight");
}

INSTANTIATE_TEST_SUITE_P(Places, WeightAverages, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

TEST(WeightAverage, RefusesWhatItCannotAverage) {
  EXPECT_THROW(WeightAverage(NamedTensors{}), InvalidArgument);
  EXPECT_THROW(WeightAverage({arange(3)}), InvalidArgument);
  EXPECT_THROW(WeightAverage({ones({3})}, {.decay = 1.5}), InvalidArgument);
  WeightAverage average({ones({3})});
  EXPECT_THROW(average.swap_in(), InvalidArgument);
}

TEST(WeightAverage, NamesWhatAStateLacks) {
  WeightAverage average(NamedTensors{{"w", ones({3})}});
  try {
    average.load_state_dict({{"v", ones({3})}, {"n_averaged", tensor(std::int64_t{1})}});
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("w: missing"));
    EXPECT_THAT(error.what(), HasSubstr("v: unexpected"));
  }
  EXPECT_EQ(average.updates(), 0);
}

}  // namespace
}  // namespace lockstep
