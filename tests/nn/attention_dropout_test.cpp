#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "support/place.hpp"
#include "support/refusal.hpp"

// Attention by its scores: weights that are dropped out, masks that learn, scores far below 0.

namespace lockstep {
namespace {

constexpr TensorOptions double_precision{DType::f64};
constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(AttentionDropout, LeavesTheMeanAsItIs) {
  manual_seed(7);
  const Tensor heads = randn({1, 2, 4, 3}, double_precision);
  Tensor sum = zeros({1, 2, 4, 3}, double_precision);
  constexpr int draws = 4000;
  for (int i = 0; i < draws; ++i)
    sum = sum + scaled_dot_product_attention(heads, heads, heads, {.dropout = 0.3});
  EXPECT_TRUE(allclose(sum / draws, scaled_dot_product_attention(heads, heads, heads), 0, 0.1));
}

TEST(AttentionDropout, OfAllLeavesNothing) {
  const Tensor qkv = randn({2, 3, 12});
  EXPECT_TRUE(equal(self_attention(qkv, 2, {.dropout = 1}), zeros({2, 3, 4})));
}

TEST(AttentionDropout, TakesWholeWeightsAlikeForAllFeatures) {
  manual_seed(3);
  const Tensor heads = zeros({1, 1, 1, 8}), values = ones({1, 1, 1, 8});
  for (int i = 0; i < 20; ++i) {
    const Tensor y = scaled_dot_product_attention(heads, heads, values, {.dropout = 0.5});
    EXPECT_TRUE(equal(y, zeros_like(y)) || equal(y, full({1, 1, 1, 8}, 2.0)));
  }
}

TEST(AttentionDropout, IsRefusedOutsideOfZeroToOne) {
  const Tensor heads = randn({1, 1, 2, 2});
  for (const double p : {-0.1, 1.5, std::nan("")}) {
    const std::string message = testing::refusal(
        [&] { return scaled_dot_product_attention(heads, heads, heads, {.dropout = p}); });
    EXPECT_NE(message.find("is outside [0, 1]"), std::string::npos) << message;
    EXPECT_THROW(nn::make<nn::MultiheadAttention>({.features = 4, .dropout = p}), InvalidArgument);
    EXPECT_THROW(nn::make<models::Gpt2>({.heads = 1, .channels = 2, .attention_dropout = p}),
                 InvalidArgument);
  }
}

TEST(AttentionDropout, OfLayersIsForTraining) {
  const auto layer = nn::make<nn::MultiheadAttention>({.features = 8, .heads = 2, .dropout = 0.5});
  EXPECT_EQ(layer->describe(), "8, heads=2, dropout=0.5");
  const Tensor x = randn({2, 5, 8}), memory = randn({2, 3, 8});
  EXPECT_FALSE(equal(layer(x), layer(x)));
  EXPECT_FALSE(equal(layer(x, memory, memory), layer(x, memory, memory)));
  layer->eval();
  EXPECT_TRUE(equal(layer(x), layer(x)));
  EXPECT_TRUE(equal(layer(x, memory, memory), layer(x, memory, memory)));
}

TEST(AttentionDropout, OfTransformersIsThatOfTheirBranchesUnlessItIsGiven) {
  nn::TransformerLayerOptions options{.features = 8, .heads = 2, .dim_feedforward = 4};
  const auto is_as_before = [&] {
    const auto layer = nn::make<nn::TransformerEncoderLayer>(options);
    const Tensor x = randn({2, 5, 8});
    return equal(layer->self_attn(x), layer->self_attn(x));
  };
  options.dropout = 0.5;
  EXPECT_FALSE(is_as_before());
  options.attention_dropout = 0;
  EXPECT_TRUE(is_as_before());
  options.dropout = 0;
  options.attention_dropout = 0.5;
  EXPECT_FALSE(is_as_before());
}

TEST(AttentionDropout, OfModelsIsForTraining) {
  const auto gpt = nn::make<models::Gpt2>({.layers = 1,
                                           .heads = 2,
                                           .channels = 8,
                                           .context = 6,
                                           .vocabulary = 11,
                                           .attention_dropout = 0.5});
  const Tensor tokens = arange(6, {DType::i64}).reshape({1, 6});
  EXPECT_FALSE(equal(gpt(tokens), gpt(tokens)));
  gpt->eval();
  EXPECT_TRUE(equal(gpt(tokens), gpt(tokens)));
  const auto vit = nn::make<models::VisionTransformer>({.image_size = 4,
                                                        .patch_size = 2,
                                                        .layers = 1,
                                                        .heads = 2,
                                                        .hidden_dim = 8,
                                                        .mlp_dim = 8,
                                                        .num_classes = 3,
                                                        .attention_dropout = 0.5});
  nn::init::normal_(vit->heads->head->weight);  // starts at 0
  const Tensor images = randn({2, 3, 4, 4});
  EXPECT_FALSE(equal(vit(images), vit(images)));
  vit->eval();
  EXPECT_TRUE(equal(vit(images), vit(images)));
}

/// Query 0 sees no key, query 1 two, query 2 all.
Tensor scores_that_blind(TensorOptions options) {
  return tensor({-infinity, -infinity, -infinity, 0.5, -infinity, 1.0, 0.25, -0.5, 0.0})
      .reshape({3, 3})
      .to(options.dtype)
      .to(options.device);
}

void expect_learned_mask(Device device) {
  const TensorOptions options{DType::f64, device};
  manual_seed(2);
  Tensor q = randn({1, 2, 3, 4}, options).set_requires_grad();
  const Tensor mask = scores_that_blind(options), learned = mask.clone().set_requires_grad();
  const Tensor expected = scaled_dot_product_attention(q, q, q, {.mask = mask});
  expected.sum().backward();
  const Tensor expected_grad = q.grad().clone();
  q.set_grad({});
  const Tensor y = scaled_dot_product_attention(q, q, q, {.mask = learned});
  EXPECT_TRUE(allclose(y, expected, 1e-12, 1e-12));
  EXPECT_TRUE(equal(y.select(2, 0), zeros({1, 2, 4}, options)));
  y.sum().backward();
  EXPECT_TRUE(allclose(q.grad(), expected_grad, 1e-12, 1e-12));
  ASSERT_TRUE(learned.grad().defined());
  EXPECT_TRUE(learned.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(equal(learned.grad()[0], zeros({3}, options)));
  EXPECT_GT(learned.grad()[2].abs().sum().item<double>(), 0);
}

TEST(LearnedAttentionMask, GivesTheSameAndGetsAGradient) { expect_learned_mask(cpu); }

class LearnedAttentionMaskOnGpu : public testing::OnGpu {};
TEST_F(LearnedAttentionMaskOnGpu, GivesTheSameAndGetsAGradient) { expect_learned_mask(device); }

TEST(LearnedAttentionMask, GetsItsGradientUnderAutocast) {
  const Tensor q = randn({1, 2, 3, 4}).set_requires_grad();
  const Tensor bias = randn({2, 3, 3}).set_requires_grad();
  const amp::Autocast autocast(DType::bf16, cpu);
  const Tensor y = scaled_dot_product_attention(q, q, q, {.mask = bias});
  EXPECT_EQ(y.dtype(), DType::bf16);
  y.sum().backward();
  EXPECT_EQ(bias.grad().dtype(), DType::f32);
  EXPECT_EQ(bias.grad().shape(), Shape({2, 3, 3}));
}

/// Result and gradients of attention by its scores, in bf16.
std::vector<Tensor> attended_in_bf16(bool by_autocast, const Tensor& mask) {
  manual_seed(4);
  const auto operand = [&](const Shape& shape) {
    Tensor value = randn(shape).to(DType::bf16);
    if (by_autocast) value = value.to(DType::f32);
    return value.set_requires_grad();
  };
  const Tensor q = operand({2, 4, 5, 8}), k = operand({2, 4, 5, 8}), v = operand({2, 4, 5, 8});
  const Tensor learned = operand({4, 5, 5});
  std::optional<amp::Autocast> autocast;
  if (by_autocast) autocast.emplace(DType::bf16, cpu);
  const Tensor y = scaled_dot_product_attention(
      q, k, v, {.mask = mask.defined() ? mask : learned, .dropout = 0.25});
  y.sum().backward();
  std::vector<Tensor> all{y.detach()};
  for (const Tensor& x : {q, k, v, learned})
    if (x.grad().defined()) all.push_back(x.grad().to(DType::bf16));
  return all;
}

TEST(AttentionDropout, UnderAutocastIsThatOfOperandsIn16Bits) {
  const Tensor masks[] = {{}, tril(ones({1, 1, 5, 5}, {DType::boolean}))};
  for (const Tensor& mask : masks) {
    const auto expected = attended_in_bf16(false, mask), given = attended_in_bf16(true, mask);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(equal(given[i], expected[i])) << i;
  }
}

class AttentionGradients : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

// Sums of exponentials below the least that f32 holds, in the lengths that fused kernels have got
// wrong.
TEST_P(AttentionGradients, AreFiniteOfScoresFarBelowZero) {
  const testing::PlaceScope here(GetParam());
  for (const auto& [queries, keys] : {std::pair{64, 64}, {192, 192}, {1, 128}, {197, 197}})
    for (const bool has_mask : {false, true}) {
      SCOPED_TRACE(::testing::Message() << queries << " x " << keys << ", mask " << has_mask);
      manual_seed(5);
      constexpr double scale = 0.125;
      const TensorOptions options{DType::f64};
      Tensor q = randn({2, 2, queries, 64}, options) * 0.1,
             k = randn({2, 2, keys, 64}, options) * 0.1;
      q.slice(3, 0, 1).fill_(1);
      k.slice(3, 0, 1).fill_(-120 / scale);
      const Tensor v = randn({2, 2, keys, 64}, options), dy = randn({2, 2, queries, 64}, options);
      const auto gradients = [&](const TensorOptions& of) {
        std::vector<Tensor> operands;
        for (const Tensor& each : {q, k, v})
          operands.push_back(each.to(of.device, of.dtype).clone());
        for (Tensor& each : operands) each.set_requires_grad();
        AttentionOptions how{.scale = scale};
        if (has_mask) how.mask = ones({queries, keys}, {DType::boolean, of.device});
        scaled_dot_product_attention(operands[0], operands[1], operands[2], how)
            .backward(dy.to(of.device, of.dtype));
        return operands;
      };
      const auto found = gradients({DType::bf16, GetParam().device}), exact = gradients(options);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(all(isfinite(found[i].grad())).item<bool>()) << i;
      EXPECT_TRUE(allclose(found[2].grad().to(cpu, DType::f64), exact[2].grad(), 0.05, 0.02));
    }
}

INSTANTIATE_TEST_SUITE_P(Places, AttentionGradients, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

}  // namespace
}  // namespace lockstep
