#include <cmath>

#include <gtest/gtest.h>

#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

// LARS and LAMB against the formulas of their papers, in f64.

namespace lockstep {
namespace {

using Values = std::vector<double>;

double norm_of(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

class LayerwiseOptimizers : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }
  testing::PlaceScope scope{GetParam()};
  Generator generator{5};

  // The second takes several blocks, and several chunks of the CPU's sums.
  std::vector<Tensor> parameters() {
    std::vector<Tensor> all;
    for (const std::int64_t count : {5, 150'001, 3})
      all.push_back(random(count).set_requires_grad());
    return all;
  }
  Tensor random(std::int64_t count) {
    return randn({count}, {}, generator).to(GetParam().device, DType::f64).clone();
  }

  /// Steps of the optimizer and of `expected(parameter, gradient, states, step)`.
  template <class Expected>
  void compare(optim::Optimizer& optimizer, const std::vector<Tensor>& all, Expected expected) {
    std::vector<std::array<Values, 3>> own;  // parameter and states
    for (const Tensor& each : all) {
      const Values start = each.detach().to_vector<double>();
      own.push_back({start, Values(start.size()), Values(start.size())});
    }
    for (int step = 1; step <= 3; ++step) {
      std::vector<Values> gradients;
      for (const Tensor& each : all) {
        const Tensor gradient = random(each.numel());
        Tensor(each).set_grad(gradient);
        gradients.push_back(gradient.to_vector<double>());
      }
      optimizer.step();
      for (std::size_t i = 0; i < all.size(); ++i) {
        expected(own[i], gradients[i], step);
        const Values actual = all[i].detach().to_vector<double>();
        for (std::size_t k = 0; k < actual.size(); ++k)
          ASSERT_NEAR(actual[k], own[i][0][k], 1e-11) << "step " << step << ", tensor " << i;
      }
    }
  }
};

/// "Large Batch Training of Convolutional Networks", algorithm 1.
TEST_P(LayerwiseOptimizers, LarsIsThePapers) {
  for (const bool adapt : {true, false}) {
    const auto all = parameters();
    optim::LARS optimizer(all, {.lr = 0.5,
                                .momentum = 0.8,
                                .weight_decay = 0.1,
                                .trust_coefficient = 0.02,
                                .eps = 0.0,
                                .adapt = adapt});
    compare(optimizer, all, [adapt](auto& own, const Values& g, int) {
      auto& [w, v, unused] = own;
      const double rate = adapt ? 0.02 * norm_of(w) / (norm_of(g) + 0.1 * norm_of(w)) : 1.0;
      for (std::size_t k = 0; k < w.size(); ++k) {
        v[k] = 0.8 * v[k] + 0.5 * rate * (g[k] + 0.1 * w[k]);
        w[k] -= v[k];
      }
    });
  }
}

/// "Large Batch Optimization for Deep Learning", algorithm 2, phi(z) = z.
TEST_P(LayerwiseOptimizers, LambIsThePapers) {
  for (const bool adapt : {true, false}) {
    const auto all = parameters();
    optim::LAMB optimizer(all, {.lr = 0.1, .beta2 = 0.99, .weight_decay = 0.1, .adapt = adapt});
    compare(optimizer, all, [adapt](auto& own, const Values& g, int step) {
      auto& [x, m, v] = own;
      Values u(x.size());
      for (std::size_t k = 0; k < x.size(); ++k) {
        m[k] = 0.9 * m[k] + 0.1 * g[k];
        v[k] = 0.99 * v[k] + 0.01 * g[k] * g[k];
        const double first = m[k] / (1 - std::pow(0.9, step));
        const double second = v[k] / (1 - std::pow(0.99, step));
        u[k] = first / (std::sqrt(second) + 1e-6) + 0.1 * x[k];
      }
      const double rate = adapt ? norm_of(x) / norm_of(u) : 1.0;
      for (std::size_t k = 0; k < x.size(); ++k) x[k] -= 0.1 * rate * u[k];
    });
  }
}

// A new bias, or a layer that a loss does not reach.
TEST_P(LayerwiseOptimizers, TakeNormsOfZeroForARatioOfOne) {
  Tensor x = full({2}, 0.0, {DType::f64, GetParam().device}).set_requires_grad();
  optim::LARS lars({x}, {.lr = 0.5, .momentum = 0.0});
  x.set_grad(ones({2}, {DType::f64, GetParam().device}));
  lars.step();
  EXPECT_EQ(x.detach().to_vector<double>(), (Values{-0.5, -0.5}));
  x.set_grad(zeros({2}, {DType::f64, GetParam().device}));
  lars.step();
  EXPECT_EQ(x.detach().to_vector<double>(), (Values{-0.5, -0.5}));
}

// Their squares are beyond f32.
TEST_P(LayerwiseOptimizers, TakeNormsOfAllThatF32Holds) {
  const TensorOptions f32{.device = GetParam().device};
  for (const optim::StateFormat format :
       {optim::StateFormat::full, optim::StateFormat::bf16, optim::StateFormat::blockwise_8bit})
    for (const double size : {1e-23, 1.0, 3e19}) {
      Tensor x = ones({5000}, f32).set_requires_grad(),
             y = full({5000}, size, f32).set_requires_grad();
      optim::LARS lars({x},
                       {.lr = 0.5, .trust_coefficient = 1.0, .eps = 0.0, .state_format = format});
      x.set_grad(full({5000}, size, f32));
      lars.step();
      EXPECT_NEAR(x.detach().to_vector<float>()[0], 0.5, 1e-6) << size << name_of(format);
      optim::LAMB lamb({y}, {.lr = 0.5, .weight_decay = 0.0, .state_format = format});
      y.set_grad(ones({5000}, f32));
      lamb.step();
      EXPECT_NEAR(y.detach().to_vector<float>()[0] / size, 0.5, 1e-6) << size << name_of(format);
    }
}

INSTANTIATE_TEST_SUITE_P(Places, LayerwiseOptimizers, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

}  // namespace
}  // namespace lockstep
