#include "lockstep/nn/padding.hpp"

#include <sstream>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/conv1d.hpp"
#include "lockstep/nn/conv2d.hpp"
#include "lockstep/nn/module_ptr.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"
#include "support/grad_check.hpp"
#include "support/place.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using testing::expect_close;
using testing::expect_gradients;
using testing::GoldenCase;
using testing::refusal;
using Numbers = std::vector<std::int64_t>;

Numbers numbers(const Tensor& x) { return x.to_vector<std::int64_t>(); }

TEST(Pad, TakesElementsFromTheTensor) {
  const Tensor x = arange(1, 5);
  EXPECT_EQ(numbers(pad(x, {2, 3}, PaddingMode::reflect)), (Numbers{3, 2, 1, 2, 3, 4, 3, 2, 1}));
  EXPECT_EQ(numbers(pad(x, {2, 3}, PaddingMode::replicate)), (Numbers{1, 1, 1, 2, 3, 4, 4, 4, 4}));
  EXPECT_EQ(numbers(pad(x, {2, 3}, PaddingMode::circular)), (Numbers{3, 4, 1, 2, 3, 4, 1, 2, 3}));
  EXPECT_EQ(numbers(pad(x, {1, 0}, PaddingMode::constant)), (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(numbers(pad(x.reshape({2, 2}), {1, 0, 0, 1}, PaddingMode::reflect)),
            (Numbers{2, 1, 2, 4, 3, 4, 2, 1, 2}));
  EXPECT_EQ(pad(zeros({0, 2, 3}), {1, 1}, PaddingMode::reflect).shape(), (Shape{0, 2, 5}));
  const Tensor same = pad(x, {0, 0}, PaddingMode::circular);
  EXPECT_TRUE(equal(same, x) && !same.is_same(x));
}

TEST(Pad, RefusesToReachBeyondTheTensor) {
  const Tensor x = arange(3);
  EXPECT_THROW(pad(x, {3, 0}, PaddingMode::reflect), InvalidArgument);
  EXPECT_THROW(pad(x, {0, 4}, PaddingMode::circular), InvalidArgument);
  EXPECT_THROW(pad(zeros({2, 0}), {1, 1}, PaddingMode::replicate), InvalidArgument);
  EXPECT_THROW(pad(x, {1}, PaddingMode::replicate), InvalidArgument);
  EXPECT_THROW(pad(x, {1, -1}, PaddingMode::replicate), InvalidArgument);
  EXPECT_THROW(pad(x, {1, 1, 1, 1}, PaddingMode::replicate), InvalidArgument);
  EXPECT_NE(refusal([&] {
              pad(x, {1, 3}, PaddingMode::reflect);
            }).find("less than the extent 3"),
            std::string::npos);
}

TEST(Pad, HasTheRightGradients) {
  const Tensor x = randn({2, 3, 4}, {DType::f64});
  for (const auto mode : {PaddingMode::reflect, PaddingMode::replicate, PaddingMode::circular})
    expect_gradients(
        [&](const std::vector<Tensor>& in) {
          return square(pad(in[0], {1, 3, 2, 0}, mode));
        },
        {x});
}

TEST(PaddingLayers, ArePaddingsOfTheirModes) {
  const Tensor x = randn({2, 3, 4, 5});
  const auto same = [&](const auto& layer, const std::vector<std::int64_t>& sides,
                        PaddingMode mode) { EXPECT_TRUE(equal(layer(x), pad(x, sides, mode))); };
  same(nn::make<nn::ReflectionPad1d>(1), {1, 1}, PaddingMode::reflect);
  same(nn::make<nn::ReflectionPad2d>(1, 2, 3, 0), {1, 2, 3, 0}, PaddingMode::reflect);
  same(nn::make<nn::ReplicationPad1d>(0, 7), {0, 7}, PaddingMode::replicate);
  same(nn::make<nn::ReplicationPad2d>(2), {2, 2, 2, 2}, PaddingMode::replicate);
  same(nn::make<nn::CircularPad1d>(1, 2), {1, 2}, PaddingMode::circular);
  same(nn::make<nn::CircularPad2d>(3), {3, 3, 3, 3}, PaddingMode::circular);
  EXPECT_EQ(nn::make<nn::ReplicationPad1d>(0, 7)->describe(), "0, 7");
  EXPECT_THROW(nn::make<nn::ReflectionPad1d>(-1), InvalidArgument);
}

PaddingMode mode_of(const GoldenCase& golden) {
  const std::string mode = golden.args.text("padding_mode");
  return mode == "reflect"     ? PaddingMode::reflect
         : mode == "replicate" ? PaddingMode::replicate
         : mode == "circular"  ? PaddingMode::circular
                               : PaddingMode::constant;
}

void compare(const auto& layer, const GoldenCase& golden, Device device) {
  SCOPED_TRACE(golden.name);
  layer->load_state_dict({{"weight", golden.inputs[1]}, {"bias", golden.inputs[2]}});
  layer->to(device);
  const Tensor x = golden.inputs[0].to(device).set_requires_grad();
  const Tensor y = layer(x);
  expect_close(y, golden.outputs[0], "output");
  y.backward(golden.grad_outputs[0].to(device));
  expect_close(x.grad(), golden.grads[0], "gradient of x");
  expect_close(layer->weight.grad(), golden.grads[1], "gradient of the weight");
  expect_close(layer->bias.grad(), golden.grads[2], "gradient of the bias");
}

void expect_all_golden_convolutions(Device device) {
  int cases = 0;
  for (const GoldenCase& golden : testing::load_golden("modules")) {
    const bool same = !golden.args.has("padding");
    if (golden.op == "Conv1d")
      compare(nn::make<nn::Conv1d>({.in = 2,
                                    .out = 3,
                                    .kernel = golden.args.integer("kernel_size"),
                                    .padding = same ? same_padding : golden.args.integer("padding"),
                                    .dilation = golden.args.integer("dilation", 1),
                                    .padding_mode = mode_of(golden),
                                    .tensor = {DType::f64}}),
              golden, device);
    if (golden.op == "Conv2d") {
      const Dims kernel = golden.args.dims("kernel_size"), sides = golden.args.dims("padding");
      compare(nn::make<nn::Conv2d>({.in = 2,
                                    .out = 3,
                                    .kernel = {kernel[0], kernel[1]},
                                    .stride = golden.args.integer("stride", 1),
                                    .padding = same ? same_padding : Size2d(sides[0], sides[1]),
                                    .padding_mode = mode_of(golden),
                                    .tensor = {DType::f64}}),
              golden, device);
    }
    cases += golden.op.starts_with("Conv");
  }
  EXPECT_EQ(cases, 6);
}

TEST(PaddedConvolutions, MatchPyTorch) { expect_all_golden_convolutions(cpu); }

TEST(PaddedConvolutions, KeepTheExtentsTheyAreAskedTo) {
  const Tensor x = randn({1, 2, 5, 6}), weight = randn({3, 2, 2, 4});
  EXPECT_EQ(conv2d(x, weight, {}, {.padding = {same_padding, 1}, .dilation = 2}).shape(),
            (Shape{1, 3, 5, 2}));
  EXPECT_EQ(conv2d(x, weight, {}, {.padding = {0, same_padding}}).shape(), (Shape{1, 3, 4, 6}));
}

TEST(PaddedConvolutions, RefuseTheSamePaddingWithAStride) {
  const Tensor x = randn({1, 2, 5, 6}), weight = randn({3, 2, 2, 2});
  EXPECT_NE(refusal([&] {
              conv2d(x, weight, {}, {.stride = 2, .padding = same_padding});
            }).find("a stride of 2"),
            std::string::npos);
  EXPECT_THROW(conv1d(x[0], weight.select(3, 0), {}, {.stride = 3, .padding = same_padding}),
               InvalidArgument);
  EXPECT_THROW(nn::make<nn::Conv2d>({.in = 2, .out = 2, .stride = 2, .padding = same_padding}),
               InvalidArgument);
  EXPECT_THROW(nn::make<nn::Conv1d>({.in = 2, .out = 2, .stride = 2, .padding = same_padding}),
               InvalidArgument);
  EXPECT_THROW(conv_transpose2d(x, randn({2, 2, 2, 2}), {}, {.padding = same_padding}),
               InvalidArgument);
}

TEST(PaddedConvolutions, SayHowTheyPad) {
  EXPECT_EQ(nn::make<nn::Conv2d>({.in = 2,
                                  .out = 2,
                                  .kernel = 3,
                                  .padding = {same_padding, 1},
                                  .padding_mode = PaddingMode::reflect})
                ->describe(),
            "2, 2, kernel=3, padding=samex1, reflect");
}

}  // namespace
}  // namespace lockstep
