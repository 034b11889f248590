#include <cmath>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;

const std::vector<std::pair<std::string, Loss>>& elementwise_losses() {
  static const std::vector<std::pair<std::string, Loss>> all = {
      {"mse_loss", [](auto& a, auto& b) { return mse_loss(a, b); }},
      {"l1_loss", [](auto& a, auto& b) { return l1_loss(a, b); }},
      {"smooth_l1_loss", [](auto& a, auto& b) { return smooth_l1_loss(a, b); }},
      {"huber_loss", [](auto& a, auto& b) { return huber_loss(a, b); }},
      {"binary_cross_entropy_with_logits",
       [](auto& a, auto& b) { return binary_cross_entropy_with_logits(a, b); }},
      {"kl_div", [](auto& a, auto& b) { return kl_div(a, b); }},
  };
  return all;
}

TEST(Losses, RefuseATargetThatWouldBeBroadcast) {
  const std::pair<Shape, Shape> pairs[] = {{{4, 1}, {4}},    {{4}, {4, 1}}, {{4, 3}, {3}},
                                           {{4, 3}, {1, 3}}, {{4}, {}},     {{1, 4}, {4}}};
  for (const auto& [name, loss] : elementwise_losses())
    for (const auto& [input, target] : pairs) try {
        loss(rand(input), rand(target));
        ADD_FAILURE() << name << " took " << input << " and " << target;
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(name + ":"));
        EXPECT_THAT(error.what(), HasSubstr("must be the same"));
      }
}

TEST(Losses, TakeAnyShapeThatInputAndTargetShare) {
  for (const auto& [name, loss] : elementwise_losses())
    for (const Shape& shape : {Shape{4}, Shape{4, 1}, Shape{2, 3, 4}})
      EXPECT_EQ(loss(rand(shape), rand(shape)).numel(), 1) << name;
}

TEST(Losses, AreAbsoluteDifferencesWhereNothingIsQuadratic) {
  const Tensor x = rand({5}), y = rand({5});
  EXPECT_EQ(smooth_l1_loss(x, y, 0.0).item(), l1_loss(x, y).item());
  EXPECT_THROW(smooth_l1_loss(x, y, -1.0), InvalidArgument);
}

TEST(Losses, RefuseAPositiveWeightThatWidensThem) {
  const Tensor x = zeros({4}), t = ones({4});
  EXPECT_THROW(binary_cross_entropy_with_logits(x, t, ones({4, 1})), InvalidArgument);
  EXPECT_EQ(binary_cross_entropy_with_logits(zeros({2, 4}), ones({2, 4}), ones({4})).numel(), 1);
}

TEST(Losses, NameWeightsThatDoNotFit) {
  using testing::refusal;
  const Tensor x = rand({8, 3}), t = ones({8, 3});
  const auto of_logits = [&](const Tensor& weight, const Tensor& pos_weight) {
    return refusal([&] { return binary_cross_entropy_with_logits(x, t, weight, pos_weight); });
  };
  EXPECT_THAT(
      of_logits({}, ones({3}, {DType::f64})),
      HasSubstr("binary_cross_entropy_with_logits: a positive weight is f64 on cpu, and the "
                "input f32 on cpu"));
  EXPECT_THAT(of_logits(ones({3}, {DType::f64}), {}), HasSubstr("a weight is f64"));
  {
    const amp::Autocast autocast(DType::bf16, cpu);  // which converts the rest
    EXPECT_EQ(of_logits({}, ones({3}, {DType::bf16})), "accepted");
  }
  EXPECT_THAT(of_logits({}, ones({2})), HasSubstr("_with_logits: a positive weight of shape [2]"));
  EXPECT_THAT(refusal([&] {
                return cross_entropy(x, zeros({8}, {DType::i64}),
                                     {.weight = ones({3}, {DType::f64})});
              }),
              HasSubstr("the weight is f64 on cpu, and the input f32 on cpu"));
  EXPECT_THAT(refusal([&] {
                return embedding(rand({4, 2}), zeros({3}, {DType::i64}));
              }),
              HasSubstr("the index, which comes before the table, has dtype f32"));
}

TEST(Losses, RefuseClassNumbersOfAnotherShape) {
  const Tensor x = log_softmax(rand({4, 3}), 1);
  EXPECT_THROW(nll_loss(x, zeros({4, 1}, {DType::i64})), InvalidArgument);
  EXPECT_THROW(nll_loss(x, zeros({3}, {DType::i64})), InvalidArgument);
  EXPECT_THROW(nll_loss(rand({3}), zeros({1}, {DType::i64})), InvalidArgument);
  EXPECT_THROW(nll_loss(x, zeros({4}, {DType::i64}), {.weight = ones({4})}), InvalidArgument);
  EXPECT_EQ(nll_loss(rand({2, 3, 5}), zeros({2, 5}, {DType::i64}), Reduction::none).shape(),
            (Shape{2, 5}));
}

TEST(Losses, OfLogProbabilitiesAreThoseOfLogits) {
  const Tensor logits = rand({5, 3, 2}), scores = log_softmax(logits, 1);
  const Tensor targets = tensor<std::int64_t>({0, 2, 1, -1, 2, 0, -1, 1, 1, 2}).reshape({5, 2});
  const Tensor weight = tensor<float>({0.5f, 1.0f, 2.0f});
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    for (const Tensor& weights : {Tensor(), weight}) {
      const Tensor loss = nll_loss(scores, targets,
                                   {.weight = weights, .ignore_index = -1, .reduction = reduction});
      const Tensor whole = cross_entropy(
          logits, targets, {.weight = weights, .ignore_index = -1, .reduction = reduction});
      ASSERT_EQ(loss.shape(), whole.shape());
      EXPECT_LE(max_abs_difference(loss, whole), 1e-5);
    }
  EXPECT_THROW(nll_loss(scores, targets), InvalidArgument);  // -1 is no class
  EXPECT_TRUE(std::isnan(nll_loss(rand({2, 3}), full({2}, -100, {DType::i64})).item()));
  EXPECT_EQ(nll_loss(tensor<float>({-1, -2, -3}), scalar(1, {DType::i64})).item(), 2);
  for (const DType dtype :
       {DType::bf16, DType::f16})  // sums past what these count exactly, or at all
    EXPECT_EQ(nll_loss(full({70'000, 2}, -5, {dtype}), zeros({70'000}, {DType::i64})).item(), 5);
  EXPECT_THROW(nll_loss(scores, zeros({5, 2}, {DType::i32})), InvalidArgument);
  EXPECT_THROW(nll_loss(scores, targets, {.weight = ones({3}, {DType::f64}), .ignore_index = -1}),
               InvalidArgument);
}

}  // namespace
}  // namespace lockstep
