#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

TEST(ConvTranspose1d, GivesPyTorchsNumbers) {
  const Tensor x = tensor({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}).reshape({1, 2, 3});
  const Tensor weight = tensor({1.0, 2.0, 0.5, -1.0}).reshape({2, 1, 2});
  const Tensor y =
      conv_transpose1d(x, weight, tensor({0.25}), {.stride = 2, .padding = 1, .output_padding = 1});
  EXPECT_EQ(y.shape(), (Shape{1, 1, 5}));
  // Position 2 i + k - 1 gets x[i] weight[k]; the first position is cut off.
  EXPECT_TRUE(equal(y, tensor({-1.75, 4.75, -0.75, 6.25, 0.25}).reshape({1, 1, 5})));
}

TEST(ConvTranspose1d, TurnsRoundTheConvolutionOfItsGeometry) {
  manual_seed(4);
  const TensorOptions f64{DType::f64};
  const Tensor x = randn({2, 4, 9}, f64).set_requires_grad(), weight = randn({6, 2, 3}, f64);
  const Tensor y = conv1d(x, weight, {}, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2});
  const Tensor dy = randn(y.shape(), f64);
  y.backward(dy);
  const Tensor turned =
      conv_transpose1d(dy, weight, {}, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2});
  EXPECT_TRUE(allclose(turned, x.grad(), 1e-12, 1e-12));
}

TEST(ConvTranspose1d, IsALayer) {
  const auto layer = nn::make<nn::ConvTranspose1d>({.in = 4,
                                                    .out = 6,
                                                    .kernel = 3,
                                                    .stride = 2,
                                                    .padding = 1,
                                                    .output_padding = 1,
                                                    .groups = 2});
  EXPECT_EQ(layer->weight.shape(), (Shape{4, 3, 3}));
  EXPECT_EQ(layer(randn({2, 4, 5})).shape(), (Shape{2, 6, 10}));
  EXPECT_EQ(layer->describe(), "4, 6, kernel=3, stride=2, padding=1, groups=2, output padding=1");
  EXPECT_THROW(nn::make<nn::ConvTranspose1d>(4, 2, 0), InvalidArgument);
  const std::string message = testing::refusal([&] { return layer(randn({2, 4, 5, 1})); });
  EXPECT_NE(message.find("needs sequences [N, C, L]"), std::string::npos) << message;
}

TEST(Conv1d, SpeaksOfItselfAndOfSequences) {
  EXPECT_THAT(testing::refusal([] {
                conv1d(ones({1, 2, 3}), ones({2, 2, 5}));
              }),
              ::testing::HasSubstr("conv1d: a kernel of shape [2, 2, 5] with dilation 1 does not "
                                   "fit sequences of shape [1, 2, 3] with padding 0"));
  EXPECT_THAT(testing::refusal([] {
                conv1d(ones({1, 3, 9}), ones({2, 2, 5}));
              }),
              ::testing::HasSubstr("conv1d: input of shape [1, 3, 9] does not fit a weight"));
  EXPECT_THAT(testing::refusal([] {
                conv1d(ones({1, 2, 9}), ones({2, 2, 5}), {}, {.stride = 0});
              }),
              ::testing::HasSubstr("conv1d: stride 0, padding 0, dilation 1"));
  EXPECT_THAT(testing::refusal([] {
                conv_transpose1d(ones({2, 6, 2}), ones({6, 1, 2}), {},
                                 {.stride = 3, .padding = 3, .groups = 2});
              }),
              ::testing::HasSubstr("conv_transpose1d: sequences of shape [2, 6, 2]"));
}

}  // namespace
}  // namespace lockstep
