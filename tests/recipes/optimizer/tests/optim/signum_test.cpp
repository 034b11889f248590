#include <cmath>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

namespace lockstep {
namespace {

using optim::Signum;

class SignumOn : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }
  Tensor leaf(const Tensor& values, DType dtype = DType::f64) const {
    return values.to(GetParam().device, dtype).clone().set_requires_grad();
  }
  /// The steps towards the minimum of sum((x - 3)^2).
  static void descend(Signum& optimizer, const Tensor& x, int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      sum(square(x - 3.0)).backward();
      optimizer.step();
    }
  }
  testing::PlaceScope scope{GetParam()};
};

TEST_P(SignumOn, FollowsItsRule) {
  Tensor x = leaf(tensor<double>({1.0, -2.0, 0.5}));
  Signum optimizer({x}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  std::vector<double> expected{1.0, -2.0, 0.5}, momentum(3);
  for (const double sign : {1.0, -1.0, 1.0}) {
    const Tensor gradient = tensor<double>({0.5 * sign, -1.0 * sign, 0.0});
    x.set_grad(gradient.to(GetParam().device));
    optimizer.step();
    for (std::size_t i = 0; i < 3; ++i) {
      momentum[i] = 0.9 * momentum[i] + 0.1 * gradient.to_vector<double>()[i];
      expected[i] *= 1 - 0.1 * 0.01;
      if (momentum[i] != 0) expected[i] -= std::copysign(0.1, momentum[i]);
    }
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(x.detach().to(cpu).to_vector<double>()[i], expected[i], 1e-12);
  }
}

TEST_P(SignumOn, FindsTheMinimum) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Tensor x = leaf(tensor<double>({1.0, -2.0, 5.0}), dtype);
    Signum optimizer({x});
    // It swings around the minimum by some tens of its steps.
    for (const double lr : {0.05, 0.01, 0.002}) {
      optimizer.set_lr(lr);
      descend(optimizer, x, 200);
    }
    EXPECT_TRUE(allclose(x.detach().to(cpu, DType::f64), full({3}, 3.0, {DType::f64}), 0, 0.1))
        << dtype;
  }
}

TEST_P(SignumOn, GoesOnFromItsSavedState) {
  const Tensor a = leaf(tensor<double>({1.0, -2.0})), b = leaf(tensor<double>({1.0, -2.0}));
  Signum whole({a}, {.lr = 0.1}), first({b}, {.lr = 0.1});
  descend(whole, a, 6);
  descend(first, b, 3);
  Signum second({b}, {.lr = 0.1});
  NamedTensors state = first.state_dict();
  for (auto& [name, value] : state) value = value.to(cpu);
  second.load_state_dict(state);
  descend(second, b, 3);
  EXPECT_TRUE(equal(a.to(cpu), b.to(cpu)));
}

INSTANTIATE_TEST_SUITE_P(Places, SignumOn, ::testing::ValuesIn(testing::places()),
                         [](const auto& each) { return std::string(each.param.backend); });

TEST(Signum, RefusesOptionsOutOfRange) {
  const Tensor x = zeros({2}).set_requires_grad();
  EXPECT_THROW(Signum({x}, {.lr = -1.0}), InvalidArgument);
  EXPECT_THROW(Signum({x}, {.momentum = 1.0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
