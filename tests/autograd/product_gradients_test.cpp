#include <string>

#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

using autograd::AutocastModeGuard;
using lockstep::testing::FixedSink;

/// Where products run, and the dtype in which they do under mixed precision.
struct Target {
  Device device;
  DType dtype;
};

/// Gradients of f32 operands of products in a lower precision.
class ProductGradients : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && cuda_device_count() == 0)
      GTEST_SKIP() << "no CUDA device on this machine";
  }
  Device device() const { return GetParam().device; }
  DType lower() const { return GetParam().dtype; }
  Tensor leaf(const Shape& shape) const {
    return randn(shape).to(device()).detach().set_requires_grad(true);
  }
  /// What a product in the lower precision sees of a tensor, in f64.
  Tensor seen(const Tensor& x) const { return x.detach().to(cpu).to(lower()).to(DType::f64); }
  /// True if a gradient is the expected one to the digits of f32.
  static bool is_exact(const Tensor& gradient, const Tensor& expected) {
    return allclose(gradient.to(cpu).to(DType::f64), expected, 2e-5, 2e-5);
  }
};

TEST_P(ProductGradients, OfALinearLayerAreNotRoundedToThePrecisionOfTheProduct) {
  const Tensor x = leaf({64, 96}), weight = leaf({48, 96}), bias = leaf({48});
  const Tensor dy = randn({64, 48}).to(lower());
  const Tensor expected = matmul(seen(dy).transpose(0, 1), seen(x));
  ASSERT_FALSE(is_exact(expected.to(lower()), expected)) << "rounding would not be noticed";
  const FixedSink sink(weight, full({48, 96}, 7.0, weight.options()));
  for (const double times : {1.0, 2.0}) {  // the second is added to the first
    {
      const AutocastModeGuard autocast(device().type, lower());
      linear(x, weight, bias).backward(dy.to(device()));
    }
    EXPECT_EQ(weight.grad().dtype(), DType::f32);
    EXPECT_TRUE(is_exact(weight.grad(), expected * times)) << "weight, backward " << times;
    EXPECT_TRUE(is_exact(bias.grad(), sum(seen(dy), {0}) * times)) << "bias, backward " << times;
    EXPECT_TRUE(is_exact(x.grad(), matmul(seen(dy), seen(weight)) * times))
        << "input, backward " << times;
  }
}

// The residual stream stays in f32, and nothing is rounded on the way into it.
TEST_P(ProductGradients, OfALinearLayerThatIsAddedToAnF32Tensor) {
  const Tensor x = leaf({64, 96}), weight = leaf({48, 96}), bias = leaf({48}),
               addend = leaf({64, 48});
  const Tensor dy = randn({64, 48});
  Tensor y;
  {
    const AutocastModeGuard autocast(device().type, lower());
    y = add_linear(addend, x, weight, bias);
  }
  EXPECT_EQ(y.dtype(), DType::f32);
  const auto wide = [](const Tensor& t) { return t.detach().to(cpu).to(DType::f64); };
  const Tensor product = matmul(seen(x), seen(weight).transpose(0, 1));
  EXPECT_TRUE(is_exact(y, wide(addend) + product + wide(bias)));
  y.backward(dy.to(device()));
  EXPECT_TRUE(is_exact(addend.grad(), dy.to(DType::f64)));
  EXPECT_TRUE(is_exact(weight.grad(), matmul(seen(dy).transpose(0, 1), seen(x))));
  EXPECT_TRUE(is_exact(bias.grad(), sum(seen(dy), {0})));
  EXPECT_TRUE(is_exact(x.grad(), matmul(seen(dy), seen(weight))));
}

TEST_P(ProductGradients, OfAPerceptronAreThoseOfItsLayers) {
  const Tensor x = leaf({64, 40}), up = leaf({80, 40}), up_bias = leaf({80}), down = leaf({48, 80}),
               down_bias = leaf({48}), addend = leaf({64, 48});
  const Tensor dy = randn({64, 48}).to(device());
  const auto near = [](const Tensor& a, const Tensor& b) {
    return allclose(a, b, 0.05, 1.0);
  };  // of some 50
  std::vector<Tensor> results;
  for (const bool fused : {true, false}) {
    const AutocastModeGuard autocast(device().type, lower());
    const Tensor y = fused ? mlp(x, {up, up_bias, down, down_bias}, {.addend = addend})
                           : addend + linear(gelu(linear(x, up, up_bias), GeluApproximation::tanh),
                                             down, down_bias);
    EXPECT_EQ(y.dtype(), DType::f32);
    y.backward(dy);
    if (fused) {
      const NoGradGuard no_recording;
      EXPECT_TRUE(near(mlp(x, {up, up_bias, down, down_bias}, {.addend = addend}), y));
    }
    results.push_back(y.detach());
    for (Tensor each : {x, up, up_bias, down, down_bias, addend}) {
      EXPECT_EQ(each.grad().dtype(), DType::f32);
      results.push_back(each.grad().clone());
      each.set_grad({});
    }
  }
  for (std::size_t i = 0; i < results.size() / 2; ++i)
    EXPECT_TRUE(near(results[i], results[i + results.size() / 2])) << "result " << i;
}

TEST_P(ProductGradients, OfAMatrixProductAreNotRoundedToThePrecisionOfTheProduct) {
  const Tensor a = leaf({3, 20, 70}), b = leaf({3, 70, 24});
  const Tensor dy = randn({3, 20, 24}).to(lower());
  {
    const AutocastModeGuard autocast(device().type, lower());
    matmul(a, b).backward(dy.to(device()));
  }
  EXPECT_TRUE(is_exact(b.grad(), matmul(seen(a).transpose(1, 2), seen(dy))));
  EXPECT_TRUE(is_exact(a.grad(), matmul(seen(dy), seen(b).transpose(1, 2))));
}

TEST_P(ProductGradients, OfAConvolutionAreNotRoundedToThePrecisionOfTheProduct) {
  const Conv2dOptions options{.padding = 1};
  for (const bool transposed : {false, true}) {
    const auto convolve = [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
      return transposed ? conv_transpose2d(x, weight, bias, {.padding = 1})
                        : conv2d(x, weight, bias, options);
    };
    const Tensor x = leaf({4, 16, 9, 9}), weight = leaf({16, 16, 3, 3}), bias = leaf({16});
    const Tensor dy = randn({4, 16, 9, 9}).to(lower());
    const Tensor exact_weight = seen(weight).set_requires_grad();
    convolve(seen(x), exact_weight, {}).backward(seen(dy));
    const Tensor expected = exact_weight.grad();
    // cuDNN gives weight gradients in the dtype of the images.
    const double close = device().is_cuda() ? 1e-2 : 2e-5;
    ASSERT_FALSE(is_exact(expected.to(lower()), expected)) << "rounding would not be noticed";
    const FixedSink sink(weight, full({16, 16, 3, 3}, 7.0, weight.options()));
    for (const double times : {1.0, 2.0}) {  // the second is added to the first
      {
        const AutocastModeGuard autocast(device().type, lower());
        convolve(x, weight, bias).backward(dy.to(device()));
      }
      EXPECT_EQ(weight.grad().dtype(), DType::f32);
      EXPECT_TRUE(
          allclose(weight.grad().to(cpu).to(DType::f64), expected * times, close, 8 * close))
          << "transposed " << transposed << ", backward " << times;
      EXPECT_TRUE(is_exact(bias.grad(), sum(seen(dy), {0, 2, 3}) * times));
    }
  }
}

TEST_P(ProductGradients, OfARecurrentLayerAreNotRoundedToThePrecisionOfTheProduct) {
  const Tensor x = leaf({5, 4, 12}), state = leaf({4, 8});
  for (const std::int64_t gates : {4, 3}) {
    const RecurrentWeights weights{leaf({gates * 8, 12}), leaf({gates * 8, 8}), leaf({gates * 8}),
                                   leaf({gates * 8})};
    {
      const AutocastModeGuard autocast(device().type, lower());
      const Tensor y =
          gates == 4 ? lstm_layer(x, state, state, weights).first : gru_layer(x, state, weights);
      y.backward(randn(y.shape()).to(y.options().dtype).to(device()));
    }
    for (const Tensor& weight :
         {weights.input, weights.hidden, weights.input_bias, weights.hidden_bias}) {
      const Tensor gradient = weight.grad().to(cpu);
      EXPECT_NE(gradient.to_vector<float>(), gradient.to(lower()).to_vector<float>())
          << gates << " gates, weight of shape " << weight.shape();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ProductGradients,
                         ::testing::Values(Target{cpu, DType::bf16}, Target{cpu, DType::f16},
                                           Target{cuda(0), DType::bf16},
                                           Target{cuda(0), DType::f16}),
                         [](const auto& each) {
                           return std::string(each.param.device.is_cuda() ? "cuda_" : "cpu_") +
                                  std::string(name(each.param.dtype));
                         });

}  // namespace
}  // namespace lockstep
