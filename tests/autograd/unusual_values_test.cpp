#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/leaves.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/memory_stats.hpp"

// NaN, infinities, zeros and nothing at all: results and gradients, beside PyTorch's.

namespace lockstep {
namespace {

using ::testing::ElementsAre, ::testing::IsNan;
using testing::leaf;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> gradient_of(const Tensor& y, const Tensor& x) {
  sum(y).backward();
  return x.grad().to_vector<double>();
}

// A GradScaler looks at gradients alone.
TEST(UnusualValues, HuberAndSmoothL1LossesHaveTheGradientNaNWhereTheErrorIs) {
  const Tensor zeros_like_x = zeros({3}, {.dtype = DType::f64});
  for (const double edge : {1.0, 0.25}) {
    Tensor x = leaf({nan, 0.5, -2.0});
    EXPECT_THAT(gradient_of(huber_loss(x, zeros_like_x, edge, Reduction::sum), x),
                ElementsAre(IsNan(), std::min(0.5, edge), -edge));
    Tensor z = leaf({nan, 0.5, -2.0});
    EXPECT_THAT(gradient_of(smooth_l1_loss(z, zeros_like_x, edge, Reduction::sum), z),
                ElementsAre(IsNan(), std::min(0.5 / edge, 1.0), -1.0));
  }
}

TEST(UnusualValues, KlDivOfATargetBelowZeroIsNaNAndOfZeroNothing) {
  const Tensor input = tensor<double>({-1.0, -2.0}), target = tensor<double>({0.0, -0.5});
  EXPECT_THAT(kl_div(input, target, Reduction::none).to_vector<double>(),
              ElementsAre(0.0, IsNan()));
}

TEST(UnusualValues, RoundedQuotientsHaveTheGradientZeroAlsoWhereTheDivisorIs) {
  for (const RoundingMode rounding : {RoundingMode::trunc, RoundingMode::floor}) {
    Tensor a = leaf({1.0, -7.0, nan}), b = leaf({0.0, 2.0, 1.0});
    const Tensor y = div(a, b, rounding);
    EXPECT_EQ(y.to_vector<double>()[1], rounding == RoundingMode::trunc ? -3 : -4);
    sum(y).backward();
    EXPECT_THAT(a.grad().to_vector<double>(), ElementsAre(0.0, 0.0, 0.0));
    EXPECT_THAT(b.grad().to_vector<double>(), ElementsAre(0.0, 0.0, 0.0));
  }
}

TEST(UnusualValues, ProductsKeepNaNAndInfinitiesBesideAZeroInGradients) {
  Tensor x = leaf({0.0, infinity, 2.0});
  const std::vector<double> of_x = gradient_of(prod(x), x);
  EXPECT_EQ(of_x[0], infinity);
  EXPECT_THAT(of_x[2], IsNan());
  Tensor y = leaf({nan, 0.0, 2.0});
  const std::vector<double> gradient = gradient_of(prod(y), y);
  EXPECT_THAT(gradient[1], IsNan());
  EXPECT_THAT(gradient[2], IsNan());
  Tensor z = leaf({0.0, 0.0, 3.0});
  EXPECT_THAT(gradient_of(prod(z), z), ElementsAre(0.0, 0.0, 0.0));
}

TEST(UnusualValues, BothOfAPairGetTheGradientWhereOneIsNaN) {
  for (Tensor (*const extreme)(const Tensor&, const Tensor&) : {maximum, minimum}) {
    Tensor a = leaf({nan, 1.0, 4.0}), b = leaf({1.0, nan, 4.0});
    sum(extreme(a, b)).backward();
    EXPECT_THAT(a.grad().to_vector<double>(), ElementsAre(1.0, 1.0, 0.5));
    EXPECT_THAT(b.grad().to_vector<double>(), ElementsAre(1.0, 1.0, 0.5));
  }
}

TEST(UnusualValues, TheLogarithmOfNoSumIsMinusInfinity) {
  const Tensor y = logsumexp(zeros({0, 3}, {.dtype = DType::f64}), 0);
  EXPECT_THAT(y.to_vector<double>(), ElementsAre(-infinity, -infinity, -infinity));
  EXPECT_EQ(logsumexp(zeros({3, 0, 2}), 2).shape(), (Shape{3, 0}));
}

TEST(UnusualValues, NumbersToThePowerOfElementsAndPairsOfTensorsHaveTheShortNames) {
  Tensor x = leaf({3.0, -1.0});
  EXPECT_THAT(pow(2.0, x).to_vector<double>(), ElementsAre(8.0, 0.5));
  EXPECT_NEAR(gradient_of(pow(2.0, x), x)[0], 8 * std::log(2.0), 1e-12);
  const Tensor other = tensor<double>({0.0, 5.0});
  EXPECT_THAT(max(x, other).to_vector<double>(), ElementsAre(3.0, 5.0));
  EXPECT_THAT(min(x, other).to_vector<double>(), ElementsAre(0.0, -1.0));
}

// The number is one of the tensor's own dtype, or beyond all of them.
TEST(UnusualValues, IntegersAreComparedWithNumbersWithoutACopy) {
  const std::int64_t count = 1 << 20;
  for (const DType dtype : {DType::u8, DType::i32, DType::boolean}) {
    const Tensor x = ones({count}, {.dtype = dtype});
    const std::size_t before = memory_allocated(cpu);
    reset_peak_memory_stats(cpu);
    EXPECT_TRUE(all(x == 1).item<bool>());
    EXPECT_LT(max_memory_allocated(cpu) - before, 3 * static_cast<std::size_t>(count));
    EXPECT_TRUE(all(x < 300).item<bool>() && all(x > -1).item<bool>());
    EXPECT_FALSE(any(x == 3e9).item<bool>() || any(x == 0.5).item<bool>());
    EXPECT_TRUE(all(x > 0.5).item<bool>() && all(x != -7).item<bool>());
  }
}

}  // namespace
}  // namespace lockstep
