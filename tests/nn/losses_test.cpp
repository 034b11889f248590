#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

// Losses, as layers and by numbers.

namespace lockstep {
namespace {

TEST(Losses, MatchTheirOps) {
  const Tensor x = rand({4, 3}), y = rand({4, 3}), weight = rand({3});
  const Tensor classes = tensor<std::int64_t>({0, 2, 1, 1});
  EXPECT_TRUE(equal(nn::make<nn::MSELoss>()(x, y), mse_loss(x, y)));
  EXPECT_TRUE(equal(nn::make<nn::L1Loss>(Reduction::sum)(x, y), l1_loss(x, y, Reduction::sum)));
  EXPECT_TRUE(equal(nn::make<nn::BCELoss>()(x, y), binary_cross_entropy(x, y)));
  EXPECT_TRUE(equal(nn::make<nn::BCEWithLogitsLoss>({.pos_weight = weight})(x, y),
                    binary_cross_entropy_with_logits(x, y, {}, weight)));
  EXPECT_TRUE(equal(nn::make<nn::BCEWithLogitsLoss>({.weight = weight})(x, y),
                    binary_cross_entropy_with_logits(x, y, weight)));
  EXPECT_TRUE(equal(nn::make<nn::KLDivLoss>()(x.log(), y), kl_div(x.log(), y)));
  EXPECT_TRUE(equal(nn::make<nn::CrossEntropyLoss>()(x, classes), cross_entropy(x, classes)));
  EXPECT_TRUE(equal(nn::make<nn::NLLLoss>()(x, classes), nll_loss(x, classes)));
  EXPECT_TRUE(equal(nn::make<nn::SmoothL1Loss>(Reduction::sum, 0.5)(x, y),
                    smooth_l1_loss(x, y, 0.5, Reduction::sum)));
  EXPECT_TRUE(equal(nn::make<nn::HuberLoss>(Reduction::sum, 0.5)(x, y),
                    huber_loss(x, y, 0.5, Reduction::sum)));
  EXPECT_TRUE(equal(huber_loss(x, y, Reduction::sum, 0.5), huber_loss(x, y, 0.5, Reduction::sum)));
  EXPECT_TRUE(
      equal(smooth_l1_loss(x, y, Reduction::none), smooth_l1_loss(x, y, 1.0, Reduction::none)));
  const Tensor points = rand({4, 3}), signs = tensor<float>({1, -1, -1, 1});
  EXPECT_TRUE(
      equal(nn::make<nn::TripletMarginLoss>(TripletMarginLossOptions{.swap = true})(x, y, points),
            triplet_margin_loss(x, y, points, {.swap = true})));
  EXPECT_TRUE(
      equal(nn::make<nn::GaussianNLLLoss>()(x, y, points), gaussian_nll_loss(x, y, points)));
  EXPECT_TRUE(equal(nn::make<nn::PoissonNLLLoss>()(x, y), poisson_nll_loss(x, y)));
  EXPECT_TRUE(equal(nn::make<nn::MarginRankingLoss>(0.5)(x, y, points),
                    margin_ranking_loss(x, y, points, 0.5)));
  EXPECT_TRUE(equal(nn::make<nn::CosineEmbeddingLoss>(0.1)(x, y, signs),
                    cosine_embedding_loss(x, y, signs, 0.1)));
  EXPECT_TRUE(equal(nn::make<nn::KLDivLoss>(Reduction::sum, true)(x, y),
                    kl_div(x, y, Reduction::sum, true)));
  EXPECT_TRUE(equal(nn::make<nn::CosineSimilarity>(0)(x, y), cosine_similarity(x, y, 0)));
  const auto weighted = nn::make<nn::BCELoss>(weight, Reduction::none);
  EXPECT_TRUE(equal(weighted(x, y), binary_cross_entropy(x, y, weight, Reduction::none)));
  EXPECT_EQ(weighted->state_dict().size(), 1u);
  EXPECT_EQ(weighted->state_dict()[0].first, "weight");
  EXPECT_THROW(weighted(x, y.slice(0, 0, 2)), InvalidArgument);
  EXPECT_THROW(binary_cross_entropy(x, y, rand({5})), InvalidArgument);
}

// Numbers of PyTorch 2.15.
TEST(Losses, OfMarginsAndDensitiesArePyTorchs) {
  const Tensor a = tensor<double>({{0.5, -1, 2}, {1, 0.25, -0.5}}),
               b = tensor<double>({{0.25, 1, 1.5}, {-1, 0.5, 0.5}}),
               c = tensor<double>({{1.5, 0, 2.25}, {2, 0.75, -0.25}}), t = tensor<double>({1, -1}),
               count = tensor<double>({{0, 1, 3}, {2, 5, 1.5}}),
               variance = tensor<double>({{0.5, 0, 2}, {1, 0.25, 0.5}});
  const auto is = [](const Tensor& loss, std::vector<double> values) {
    const auto found = loss.flatten().to_vector<double>();
    ASSERT_EQ(found.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(found[i], values[i], 1e-12 * std::abs(values[i]));
  };
  const auto none = Reduction::none;
  is(triplet_margin_loss(a, b, c, {.reduction = none}), {1.6405162688650954, 2.104357937119956});
  is(triplet_margin_loss(a, b, c, {.margin = 2, .p = 1, .swap = true, .reduction = none}),
     {2.500004, 3.500002});
  is(cosine_embedding_loss(a, b, t, -0.9, none), {0.4904329480694719, 0.0982162742632996});
  is(margin_ranking_loss(a.select(1, 0), b.select(1, 0), t, 0.5, none), {0.25, 2.5});
  is(gaussian_nll_loss(a, b, variance, {.full = true, .reduction = none}),
     {0.6348649429247, 1999994.0111832542, 1.3280121234846454, 2.9189385332046727,
      0.3507913526447274, 1.5723649429247});
  is(gaussian_nll_loss(a, b, variance.slice(1, 0, 1)), {0.9673382048600137});
  is(gaussian_nll_loss(a, b, variance.select(1, 0)), {0.9673382048600137});
  is(poisson_nll_loss(a, count, {.full = true, .reduction = none}),
     {1.6487212707001282, 1.3678794411714423, 3.153137642473707, 1.370088313063581,
      4.8048724682799655, 1.586399409133635});
  is(poisson_nll_loss(c + 0.5, count, {.log_input = false, .reduction = none}),
     {2.0, 1.1931471605599455, -0.2848027459445306, 0.66741852825169, 0.1342822034289517,
      2.3294414816798374});
  is(kl_div(a, b, none, true), {-0.32100635417193535, 5.43656365691809, -2.2408445351690323,
                                -0.7357588823428847, 0.41218031767503205, 1.6487212707001282});
  is(nn::make<nn::Softplus>(2.0, 1.5)(a),
     {0.6566308437591114, 0.06346400552148625, 2, 1, 0.48703849209005334, 0.15663084375911143});
  Tensor moved = variance.clone().set_requires_grad();
  gaussian_nll_loss(a, b, moved, {.reduction = Reduction::sum}).backward();
  EXPECT_NEAR(moved.grad().select(0, 0).select(0, 1).item(), -1.9999995e12, 1e6);  // as if bounded
  EXPECT_THROW(gaussian_nll_loss(a, b, -variance), InvalidArgument);
  EXPECT_THROW(triplet_margin_loss(a, b, c, {.margin = 0}), InvalidArgument);
  EXPECT_THROW(cosine_embedding_loss(a, b, a), InvalidArgument);
}

TEST(BinaryCrossEntropy, TakesTheWeightOfEachElementFirst) {
  const Tensor x = tensor<float>({1, -1, 2, 0.5F}), t = tensor<float>({1, 0, 0, 1});
  const Tensor kept = tensor<float>({1, 0, 1, 0}), twice = tensor<float>({2, 2, 2, 2});
  const double first = std::log1p(std::exp(-1.0)), third = 2 + std::log1p(std::exp(-2.0));
  EXPECT_NEAR(binary_cross_entropy_with_logits(x, t, kept).item(), (first + third) / 4, 1e-6);
  EXPECT_NEAR(binary_cross_entropy(x.sigmoid(), t, kept).item(), (first + third) / 4, 1e-6);
  EXPECT_NEAR(binary_cross_entropy_with_logits(x, t, kept, twice, Reduction::sum).item(),
              2 * first + third, 1e-6);
}

TEST(KlDiv, IsTheMeanOverElementsUnlessAskedForRows) {
  const Tensor q = tensor<float>({0.2F, 0.8F, 0.5F, 0.5F}).reshape({2, 2});
  const Tensor input = full({2, 2}, 0.5).log();
  const double total = 0.2 * std::log(0.4) + 0.8 * std::log(1.6);
  EXPECT_NEAR(kl_div(input, q).item(), total / 4, 1e-6);
  EXPECT_NEAR(kl_div(input, q, Reduction::batch_mean).item(), total / 2, 1e-6);
  EXPECT_NEAR(kl_div(input, q, Reduction::sum).item(), total, 1e-6);
  EXPECT_EQ(kl_div(input, q, Reduction::none).shape(), (Shape{2, 2}));
}

TEST(BinaryCrossEntropy, BoundsLogarithmsAndRefusesWhatIsNoProbability) {
  const Tensor sure = tensor<float>({0, 1, 0, 1}), truth = tensor<float>({0, 1, 1, 0});
  const auto none = [](const Tensor& x, const Tensor& y) {
    return binary_cross_entropy(x, y, {}, Reduction::none);
  };
  EXPECT_EQ(none(sure, truth).to_vector<float>(), (std::vector<float>{0, 0, 100, 100}));
  for (const float outside : {-0.5F, 1.5F})
    EXPECT_TRUE(std::isnan(none(tensor<float>({outside}), tensor<float>({1})).item() +
                           none(tensor<float>({outside}), tensor<float>({0})).item()));
}

}  // namespace
}  // namespace lockstep
