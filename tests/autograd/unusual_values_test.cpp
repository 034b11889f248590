#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/leaves.hpp"
#include "lockstep/autograd/grad.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/tensor/compare.hpp"

// NaN, infinities, zeros and nothing at all: results and gradients, beside PyTorch's.

namespace lockstep {
namespace {

using ::testing::DoubleEq, ::testing::ElementsAre, ::testing::IsNan;
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

// Where the loss itself fits, though neither its parts nor their slopes do.
TEST(UnusualValues, SmoothL1LossesOf16BitsAreComputedInMore) {
  const auto loss_and_slope = [](double input, double edge) {
    Tensor x = full({1}, input, {.dtype = DType::f16});
    x.set_requires_grad();
    const Tensor loss = smooth_l1_loss(x, zeros_like(x), edge, Reduction::sum);
    const double slope = gradient_of(loss, x)[0];
    return std::pair(loss.item(), slope);
  };
  EXPECT_EQ(loss_and_slope(400, 300), std::pair(250.0, 1.0));
  EXPECT_EQ(loss_and_slope(2, 1e-6), std::pair(2.0, 1.0));
}

TEST(UnusualValues, AnglesBesideNaNHaveNoGradient) {
  const Tensor dy = ones({3}, {.dtype = DType::f64});
  for (const bool create_graph : {false, true}) {
    const Tensor y = leaf({nan, nan, 0.0}), x = leaf({0.0, -0.0, nan});
    for (const Tensor& each :
         autograd::grad(atan2(y, x), {y, x}, {.grad_outputs = {dy}, .create_graph = create_graph}))
      EXPECT_THAT(each.to_vector<double>(), ElementsAre(IsNan(), IsNan(), IsNan()));
    const Tensor small = leaf({1e-200, 2e200, 3.0}), large = leaf({0.0, 0.0, 4.0});
    const std::vector<Tensor> slopes = autograd::grad(
        atan2(small, large), {small, large}, {.grad_outputs = {dy}, .create_graph = create_graph});
    EXPECT_THAT(slopes[0].to_vector<double>(), ElementsAre(0.0, 0.0, DoubleEq(4.0 / 25)));
    EXPECT_THAT(slopes[1].to_vector<double>(),
                ElementsAre(DoubleEq(-1e200), DoubleEq(-0.5e-200), DoubleEq(-3.0 / 25)));
  }
}

TEST(UnusualValues, GradientsOfProductsThatAreRecordedAreComputedInMoreBits) {
  Tensor x = (rand({4, 256}) * 0.02 + 0.99).to(DType::bf16).set_requires_grad();
  const Tensor plain = autograd::grad(prod(x, 1).sum(), {x})[0];
  const Tensor recorded = autograd::grad(prod(x, 1).sum(), {x}, {.create_graph = true})[0];
  EXPECT_TRUE(allclose(recorded.detach(), plain, 0.02, 0.0));
}

// By products from 26 points on, in f64: as exact as by differences, with their gradients.
TEST(UnusualValues, DistancesOfManyPointsAreThoseOfFew) {
  Generator generator(5);
  const Tensor a = randn({2, 30, 9}, {}, generator) + 100.0,
               b = randn({40, 9}, {}, generator) + 100.0;
  const auto distances = [](const Tensor& x, const Tensor& z, bool first) {
    const Tensor p = x.detach().clone().set_requires_grad(),
                 q = z.detach().clone().set_requires_grad();
    const Tensor y = cdist(p, q);
    const std::vector<Tensor> slopes =
        autograd::grad((y * y * y).sum(), {p, q}, {.create_graph = true});
    (slopes[0].square().sum() + slopes[1].sum()).backward();
    return first ? std::vector<Tensor>{y.detach(), slopes[0].detach(), slopes[1].detach()}
                 : std::vector<Tensor>{p.grad(), q.grad()};
  };
  for (const bool first : {true, false}) {
    const std::vector<Tensor> many = distances(a, b, first);
    const std::vector<Tensor> few = distances(a.to(DType::f64), b.to(DType::f64), first);
    for (std::size_t i = 0; i < many.size(); ++i)
      EXPECT_LT((many[i].to(DType::f64) - few[i]).abs().max().item(),
                1e-6 * few[i].abs().max().item())
          << i;
  }
  const Tensor x = a[0].detach().clone().set_requires_grad();
  const Tensor own = cdist(x, x);
  EXPECT_EQ(diagonal(own.detach()).max().item(), 0.0);
  const std::vector<Tensor> of_equal =
      autograd::grad(cdist(x, x.detach()).sum(), {x}, {.create_graph = true});
  of_equal[0].square().sum().backward();
  EXPECT_LT(x.grad().abs().max().item(), 1e3);
}

TEST(UnusualValues, RunningProductsOfNothingHaveAGradientOfNothing) {
  for (const std::int64_t dim : {0, 1}) {
    const Tensor x = ones({3, 0}).set_requires_grad();
    cumprod(x, dim).sum().backward();
    EXPECT_EQ(x.grad().shape(), (Shape{3, 0}));
  }
}

TEST(UnusualValues, SlopesOfPreluSeeNoInfinityAboveZero) {
  const Tensor x = leaf({infinity, -2.0}), slope = leaf({0.5});
  const std::vector<Tensor> first =
      autograd::grad(prelu(x, slope).sum(), {x, slope}, {.create_graph = true});
  EXPECT_THAT(first[0].to_vector<double>(), ElementsAre(1.0, 0.5));
  EXPECT_THAT(first[1].to_vector<double>(), ElementsAre(-2.0));
  first[0].sum().backward();
  EXPECT_THAT(slope.grad().to_vector<double>(), ElementsAre(1.0));
}

TEST(UnusualValues, LogitsWithoutBoundsAndOfCertainTargets) {
  const Tensor x = leaf({-800.0, 800.0, -800.0, infinity, 0.0});
  const Tensor t = tensor<double>({0.0, 1.0, 1.0, 0.0, 0.5});
  const Tensor loss = binary_cross_entropy_with_logits(x, t, {}, {}, Reduction::none);
  EXPECT_THAT(loss.to_vector<double>(), ElementsAre(0.0, 0.0, 800.0, infinity, std::log(2.0)));
  EXPECT_THAT(gradient_of(loss, x), ElementsAre(0.0, 0.0, -1.0, 1.0, 0.0));
  const Tensor unlikely = leaf({-50.0, 50.0});  // slopes far below a rounding of 1
  const Tensor of_unlikely = binary_cross_entropy_with_logits(unlikely, tensor<double>({0.0, 1.0}),
                                                              {}, {}, Reduction::sum);
  const std::vector<double> slopes = gradient_of(of_unlikely, unlikely);
  EXPECT_NEAR(slopes[0] / std::exp(-50.0), 1.0, 1e-6);
  EXPECT_NEAR(slopes[1] / -std::exp(-50.0), 1.0, 1e-6);
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

// The mean is rounded there by as much as the values differ.
TEST(UnusualValues, SpreadsAreThoseOfValuesFarFromZero) {
  Generator generator(3);
  const Tensor near = randn({100, 40}, {.dtype = DType::f64}, generator);
  for (const double offset : {1e4, 1e6}) {
    const Tensor x = (near + offset).to(DType::f32);
    for (const int dim : {0, 1}) {
      const Tensor expected = var(x.to(DType::f64), dim);
      const Tensor error = abs(var(x, dim).to(DType::f64) / expected - 1.0);
      EXPECT_LT(amax(error).item(), 2e-6) << offset << ' ' << dim;
    }
  }
  EXPECT_EQ(std(full({1000}, 0.1)).item(), 0.0);
}

TEST(UnusualValues, ExtentsThatNoImageHasAreRefused) {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const Tensor image = ones({1, 2, 5, 4}), sequence = ones({1, 4, 9}), kernel = ones({1, 2, 4, 2});
  EXPECT_THROW(conv2d(image, kernel, {}, {.stride = {huge, 3}}), InvalidArgument);
  EXPECT_THROW(conv2d(image, kernel, {}, {.padding = {huge, 3}}), InvalidArgument);
  EXPECT_THROW(conv1d(sequence, ones({2, 4, 2}), {}, {.padding = huge}), InvalidArgument);
  EXPECT_THROW(conv_transpose1d(sequence, ones({4, 2, 2}), {}, {.padding = huge}), InvalidArgument);
  for (const bool ceil : {false, true}) {
    EXPECT_THROW(
        max_pool1d(sequence, {.kernel = 1, .stride = 2, .padding = huge, .ceil_mode = ceil}),
        InvalidArgument);
    EXPECT_THROW(avg_pool2d(image, {.kernel = huge, .ceil_mode = ceil}), InvalidArgument);
  }
  for (const std::int64_t factor : {std::int64_t{1} << 32, std::int64_t{1} << 40})
    EXPECT_THROW(pixel_shuffle(image, factor), InvalidArgument);
}

// What stands there may be anything, as where images were made larger.
TEST(UnusualValues, IgnoredPixelsAndWeightsOfClassesGetNoGradient) {
  const Tensor x = full({1, 2, 1, 3}, nan).set_requires_grad();
  no_grad([&] { x.detach().slice(3, 0, 1).fill_(0.5); });
  const Tensor weight = tensor<float>({1.0F, 2.0F}).set_requires_grad();
  const Tensor target = tensor<std::int64_t>({1, -100, -100}).reshape({1, 1, 3});
  cross_entropy(x, target, {.weight = weight}).backward();
  const Tensor slope = x.grad();
  EXPECT_THAT(slope.slice(3, 1, 3).reshape({4}).to_vector<float>(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(slope.slice(3, 0, 1).reshape({2}).to_vector<float>(), ElementsAre(0.5F, -0.5F));
  EXPECT_FALSE(weight.grad().defined());
}

}  // namespace
}  // namespace lockstep
