#include <gtest/gtest.h>

#include "autograd/grad_check_cases.hpp"

// Gradients of softmax and losses against central differences in f64.

namespace lockstep::test {
namespace {

Tensor classes() { return tensor<std::int64_t>({2, 0, 4, -100, 1}); }

GradCase cross_entropy_case(std::string name, CrossEntropyOptions options, bool weighted = false) {
  return {std::move(name),
          [=](const Tensors& in) {
            CrossEntropyOptions chosen = options;
            if (weighted) chosen.weight = beside(in, distinct({6}, 0.5, 2.0));
            return cross_entropy(in[0], beside(in, classes()), chosen);
          },
          shapes({{5, 6}})};
}

GradCase linear_cross_entropy_case(std::string name, LinearCrossEntropyOptions options,
                                   bool biased = false) {
  return {std::move(name),
          [=](const Tensors& in) {
            LinearCrossEntropyOptions chosen = options;
            if (biased) chosen.bias = in[2];
            return linear_cross_entropy(in[0], in[1], beside(in, classes()), chosen);
          },
          biased ? shapes({{5, 3}, {6, 3}, {6}}) : shapes({{5, 3}, {6, 3}})};
}

std::vector<GradCase> linear_cross_entropies() {
  return {
      linear_cross_entropy_case("linear_cross_entropy", {}),
      linear_cross_entropy_case("linear_cross_entropy_sum", {.reduction = Reduction::sum}, true),
      linear_cross_entropy_case("linear_cross_entropy_none", {.reduction = Reduction::none}, true),
      linear_cross_entropy_case("linear_cross_entropy_smooth", {.label_smoothing = 0.1}, true),
      linear_cross_entropy_case("linear_cross_entropy_chunks", {.chunk_rows = 2}, true),
      linear_cross_entropy_case("linear_cross_entropy_none_chunks",
                                {.reduction = Reduction::none, .chunk_rows = 3}),
      {"linear_cross_entropy_of_views",
       [](const Tensors& in) {
         return linear_cross_entropy(in[0].transpose(0, 1).reshape({5, 1, 3}),
                                     in[1].transpose(0, 1), beside(in, classes()).unsqueeze(1));
       },
       shapes({{3, 5}, {3, 6}})},
      {"linear_cross_entropy_of_tied_weight",
       [](const Tensors& in) {
         const Tensor rows = embedding(beside(in, tensor<std::int64_t>({3, 1, 0, 2, 3})), in[0]);
         return linear_cross_entropy(tanh(rows), in[0], beside(in, classes()));
       },
       shapes({{6, 3}})},
  };
}

std::vector<GradCase> softmaxes() {
  return {
      {"softmax", [](const Tensors& in) { return softmax(in[0], -1); }, shapes({{3, 4, 5}})},
      {"softmax_first", [](const Tensors& in) { return softmax(in[0], 0); }, shapes({{3, 4}})},
      {"log_softmax", [](const Tensors& in) { return log_softmax(in[0], -1); }, shapes({{3, 5}})},
      {"log_softmax_middle", [](const Tensors& in) { return log_softmax(in[0], 1); },
       shapes({{2, 3, 4}})},
      cross_entropy_case("cross_entropy", {}),
      cross_entropy_case("cross_entropy_sum", {.reduction = Reduction::sum}),
      cross_entropy_case("cross_entropy_none", {.reduction = Reduction::none}),
      cross_entropy_case("cross_entropy_smooth", {.label_smoothing = 0.1}),
      cross_entropy_case("cross_entropy_weighted", {.label_smoothing = 0.2}, true),
      {"cross_entropy_of_images",
       [](const Tensors& in) {
         return cross_entropy(in[0],
                              beside(in, tensor<std::int64_t>({0, 2, 1, 1}).reshape({2, 1, 2})));
       },
       shapes({{2, 3, 1, 2}})},
      {"cross_entropy_of_one_row",
       [](const Tensors& in) {
         return cross_entropy(in[0], beside(in, full({}, 1, {DType::i64})));
       },
       shapes({{4}})},
      {"cross_entropy_of_probabilities",
       [](const Tensors& in) {
         return cross_entropy(in[0], softmax(in[1], 1), {.label_smoothing = 0.1});
       },
       shapes({{3, 4}, {3, 4}})},
      {"cross_entropy_of_view",
       [](const Tensors& in) {
         return cross_entropy(in[0].transpose(0, 1), beside(in, classes()));
       },
       shapes({{6, 5}})},
  };
}

std::vector<GradCase> losses() {
  const auto targets = [](const Shape& shape) { return distinct(shape, 0.05, 0.95); };
  return {
      {"nll_loss",
       [](const Tensors& in) {
         return nll_loss(in[0], beside(in, tensor<std::int64_t>({1, 0, 2})));
       },
       shapes({{3, 4}})},
      {"nll_loss_weighted",
       [=](const Tensors& in) {
         return nll_loss(in[0], beside(in, tensor<std::int64_t>({1, -1, 2})),
                         {.weight = beside(in, distinct({4}, 0.5, 2.0)), .ignore_index = -1});
       },
       shapes({{3, 4}})},
      {"mse_loss", [](const Tensors& in) { return mse_loss(in[0], in[1]); },
       shapes({{3, 4}, {3, 4}})},
      {"mse_loss_none", [](const Tensors& in) { return mse_loss(in[0], in[1], Reduction::none); },
       shapes({{3, 4}, {3, 4}})},
      {"l1_loss", [](const Tensors& in) { return l1_loss(in[0], in[1], Reduction::sum); },
       shapes({{3, 4}, {3, 4}})},
      {"smooth_l1_loss", [](const Tensors& in) { return smooth_l1_loss(in[0], in[1], 0.7); },
       shapes({{3, 4}, {3, 4}})},
      {"huber_loss", [](const Tensors& in) { return huber_loss(in[0], in[1], 0.7); },
       shapes({{3, 4}, {3, 4}})},
      {"bce_with_logits",
       [=](const Tensors& in) {
         return binary_cross_entropy_with_logits(in[0], beside(in, targets({3, 4})));
       },
       shapes({{3, 4}})},
      {"bce_with_positive_weight",
       [=](const Tensors& in) {
         return binary_cross_entropy_with_logits(in[0], beside(in, targets({3, 4})), {},
                                                 beside(in, distinct({4}, 0.5, 2.0)));
       },
       shapes({{3, 4}})},
      {"bce_with_logits_weighted",
       [=](const Tensors& in) {
         return binary_cross_entropy_with_logits(in[0], beside(in, targets({3, 4})),
                                                 beside(in, distinct({3, 1}, 0.5, 2.0)));
       },
       shapes({{3, 4}})},
      {"binary_cross_entropy", [](const Tensors& in) { return binary_cross_entropy(in[0], in[1]); },
       shapes({{3, 4}, {3, 4}}, 0.05, 0.95)},
      {"binary_cross_entropy_weighted",
       [](const Tensors& in) {
         return binary_cross_entropy(in[0], in[1], beside(in, distinct({4}, 0.5, 2.0)),
                                     Reduction::none);
       },
       shapes({{3, 4}, {3, 4}}, 0.05, 0.95)},
      {"kl_div",
       [=](const Tensors& in) {
         return kl_div(log_softmax(in[0], 1), beside(in, targets({3, 4})));
       },
       shapes({{3, 4}})},
      {"kl_div_of_logarithms",
       [](const Tensors& in) { return kl_div(in[0], in[1], Reduction::batch_mean, true); },
       shapes({{3, 4}, {3, 4}})},
      {"pairwise_distance", [](const Tensors& in) { return pairwise_distance(in[0], in[1], 3); },
       shapes({{3, 4}, {4}})},
      {"triplet_margin_loss",
       [](const Tensors& in) {
         return triplet_margin_loss(in[0], in[1], in[2], {.margin = 9, .swap = true});
       },
       shapes({{3, 4}, {3, 4}, {3, 4}})},
      {"margin_ranking_loss",
       [=](const Tensors& in) {
         return margin_ranking_loss(in[0], in[1], beside(in, ones({3, 4}, {DType::f64})), 9);
       },
       shapes({{3, 4}, {3, 4}})},
      {"cosine_embedding_loss",
       [=](const Tensors& in) {
         return cosine_embedding_loss(in[0], in[1], beside(in, tensor<double>({1, -1, 0})), -1);
       },
       shapes({{3, 4}, {3, 4}})},
      {"gaussian_nll_loss",
       [](const Tensors& in) { return gaussian_nll_loss(in[0], in[1], in[2], {.full = true}); },
       shapes({{3, 4}, {3, 4}, {3, 1}}, 0.5, 2.0)},
      {"poisson_nll_loss", [](const Tensors& in) { return poisson_nll_loss(in[0], in[1]); },
       shapes({{3, 4}, {3, 4}}, 0.5, 2.0)},
      {"poisson_nll_loss_of_rates",
       [](const Tensors& in) {
         return poisson_nll_loss(in[0], in[1], {.log_input = false, .full = true});
       },
       shapes({{3, 4}, {3, 4}}, 1.5, 3.0)},
  };
}

class LossGradients : public ::testing::TestWithParam<GradCase> {};

TEST_P(LossGradients, MatchDifferences) {
  testing::expect_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(LossGradients, OfGradientsMatchDifferences) {
  testing::expect_second_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(LossGradients, LeaveNothingAlive) { expect_no_leak(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Softmax, LossGradients, ::testing::ValuesIn(softmaxes()), case_name);
INSTANTIATE_TEST_SUITE_P(LinearCrossEntropy, LossGradients,
                         ::testing::ValuesIn(linear_cross_entropies()), case_name);
INSTANTIATE_TEST_SUITE_P(Loss, LossGradients, ::testing::ValuesIn(losses()), case_name);

class LossGradientsOnGpu : public GradCasesOnGpu {};

TEST_F(LossGradientsOnGpu, OfSoftmaxMatchDifferences) { check(softmaxes()); }
TEST_F(LossGradientsOnGpu, OfLinearCrossEntropyMatchDifferences) {
  check(linear_cross_entropies());
}
TEST_F(LossGradientsOnGpu, OfLossesMatchDifferences) { check(losses()); }

}  // namespace
}  // namespace lockstep::test
