#include "lockstep/nn/init.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

/// Mean, standard deviation, smallest and largest element.
struct Statistics {
  explicit Statistics(const Tensor& x)
      : mean(lockstep::mean(x.detach()).item()),
        deviation(std::sqrt(var(x.detach()).item())),
        low(amin(x.detach()).item()),
        high(amax(x.detach()).item()) {}
  double mean, deviation, low, high;
};

class Init : public ::testing::Test {
 protected:
  Init() { manual_seed(11); }
  Tensor weight = empty({100, 40, 5});  // fan in 200, fan out 500
};

TEST_F(Init, UniformFillsItsRange) {
  const Statistics s(nn::init::uniform_(weight, -1.0, 3.0));
  EXPECT_NEAR(s.mean, 1.0, 0.05);
  EXPECT_GE(s.low, -1.0);
  EXPECT_LT(s.low, -0.99);
  EXPECT_LT(s.high, 3.0);
  EXPECT_GT(s.high, 2.99);
}

TEST_F(Init, UniformIn16BitsLeavesTheUpperBoundOut) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const double high : {1.0, 0.25, 0.0}) {
      const Tensor x = nn::init::uniform_(empty({200'000}, {.dtype = dtype}), -0.25, high);
      EXPECT_LT(amax(x.to(DType::f64)).item(), high);
      EXPECT_GE(amin(x.to(DType::f64)).item(), -0.25);
    }
  EXPECT_EQ(amax(nn::init::uniform_(empty({10}), 2.0, 2.0)).item(), 2.0);
}

TEST_F(Init, NormalHasItsMeanAndDeviation) {
  const Statistics s(nn::init::normal_(weight, 2.0, 0.5));
  EXPECT_NEAR(s.mean, 2.0, 0.02);
  EXPECT_NEAR(s.deviation, 0.5, 0.02);
}

TEST_F(Init, TruncatedNormalIsCutNotClamped) {
  const Tensor x = nn::init::trunc_normal_(weight, {.low = -1.0, .high = 1.0});
  const Statistics s(x);
  EXPECT_GE(s.low, -1.0);
  EXPECT_LE(s.high, 1.0);
  EXPECT_NEAR(s.deviation, 0.5396, 0.01);  // of a standard normal cut at one deviation
  EXPECT_LT(sum(ge(abs(x), ones({})).to(DType::f32)).item(), 20);
  EXPECT_THROW(nn::init::trunc_normal_(weight, {.low = 20.0, .high = 21.0}), InvalidArgument);
}

TEST_F(Init, KaimingKeepsTheVarianceOfTheChosenFan) {
  EXPECT_NEAR(Statistics(nn::init::kaiming_normal_(weight)).deviation, std::sqrt(2.0 / 200), 2e-3);
  EXPECT_NEAR(
      Statistics(nn::init::kaiming_normal_(weight, {.mode = nn::init::FanMode::out})).deviation,
      std::sqrt(2.0 / 500), 2e-3);
  const Statistics s(nn::init::kaiming_uniform_(weight, {.slope = std::sqrt(5.0)}));
  EXPECT_NEAR(s.high, 1 / std::sqrt(200.0), 1e-4);
  EXPECT_NEAR(s.low, -1 / std::sqrt(200.0), 1e-4);
}

TEST_F(Init, XavierSharesTheVarianceBetweenFans) {
  EXPECT_NEAR(Statistics(nn::init::xavier_normal_(weight, 2.0)).deviation, 2 * std::sqrt(2.0 / 700),
              2e-3);
  EXPECT_NEAR(Statistics(nn::init::xavier_uniform_(weight)).high, std::sqrt(6.0 / 700), 1e-4);
}

TEST_F(Init, OrthogonalRowsOrColumnsAreOrthonormal) {
  for (const Shape& shape :
       {Shape{5, 9}, Shape{70, 33}, Shape{33, 70}, Shape{8, 3, 2, 2}, {4, 4}}) {
    Tensor weight = zeros(shape, {.dtype = DType::f64});
    nn::init::orthogonal_(weight, 3.0);
    const Tensor rows = weight.reshape({shape[0], -1});
    const Tensor across = rows.transpose(0, 1).contiguous();
    const Tensor few = rows.size(0) <= rows.size(1) ? rows : across;
    const Tensor products = matmul(few, few.transpose(0, 1).contiguous());
    EXPECT_LT(amax(abs(products - 9.0 * eye(few.size(0), {.dtype = DType::f64}))).item(), 1e-13)
        << shape;
  }
  Generator one(5), same(5);
  EXPECT_TRUE(equal(nn::init::orthogonal_(zeros({6, 4}), 1.0, one),
                    nn::init::orthogonal_(zeros({6, 4}), 1.0, same)));
  EXPECT_EQ(nn::init::orthogonal_(zeros({3, 0})).numel(), 0);
  EXPECT_EQ(abs(nn::init::orthogonal_(zeros({1, 1}, {.dtype = DType::bf16}))).item(), 1.0);
  EXPECT_THROW(nn::init::orthogonal_(zeros({4})), InvalidArgument);
}

TEST_F(Init, ConstantsFill) {
  EXPECT_EQ(Statistics(nn::init::ones_(weight)).low, 1.0);
  EXPECT_EQ(Statistics(nn::init::zeros_(weight)).high, 0.0);
}

TEST_F(Init, NeedsTwoDimensionsForFans) {
  EXPECT_THROW(nn::init::kaiming_normal_(empty({4})), InvalidArgument);
}

TEST_F(Init, WorksOnParametersAndHalfPrecision) {
  const auto layer = nn::make<nn::Linear>(64, 64, TensorOptions{DType::bf16});
  nn::init::normal_(layer->weight, 0.0, 0.02);
  EXPECT_NEAR(Statistics(layer->weight.to(DType::f32)).deviation, 0.02, 1e-3);
  EXPECT_TRUE(layer->weight.is_leaf() && layer->weight.requires_grad());
}

TEST_F(Init, LayersStartAsPytorchStartsThem) {
  const auto linear = nn::make<nn::Linear>(100, 300);
  EXPECT_NEAR(Statistics(linear->weight).high, 0.1, 1e-3);
  EXPECT_NEAR(Statistics(linear->bias).high, 0.1, 5e-3);
  const auto conv = nn::make<nn::Conv2d>(16, 32, 5);
  EXPECT_NEAR(Statistics(conv->weight).high, 1 / 20.0, 1e-3);
  EXPECT_NEAR(Statistics(nn::make<nn::Embedding>(100, 50)->weight).deviation, 1.0, 0.05);
  const auto attention = nn::make<nn::MultiheadAttention>(64, 4);
  EXPECT_NEAR(Statistics(attention->in_proj_weight).high, std::sqrt(6.0 / 256), 1e-3);
  EXPECT_EQ(Statistics(attention->out_proj->bias).high, 0.0);
}

TEST_F(Init, IsLeftOutUnderAGuard) {
  manual_seed(1);
  const double first = rand({1}).item();
  manual_seed(1);
  const Tensor x = full({2, 3}, 7.0);
  {
    const nn::init::NoInitGuard no_values;
    nn::init::kaiming_uniform_(nn::init::normal_(nn::init::orthogonal_(nn::init::zeros_(x))));
    nn::init::trunc_normal_(x);
    nn::make<nn::Linear>(3, 4);
  }
  EXPECT_EQ(amin(x).item(), 7);
  EXPECT_EQ(amax(x).item(), 7);
  EXPECT_EQ(rand({1}).item(), first);
}

TEST_F(Init, SameSeedGivesTheSameModel) {
  manual_seed(3);
  const auto a = nn::make<nn::Linear>(10, 10);
  manual_seed(3);
  const auto b = nn::make<nn::Linear>(10, 10);
  EXPECT_TRUE(equal(a->weight, b->weight));
}

}  // namespace
}  // namespace lockstep
