#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/grad_check.hpp"
#include "tensor/counting.hpp"

// Ops that are compositions of others, and the short forms of calls.

namespace lockstep {
namespace {

using testing::counting;
using ::testing::ElementsAre;
using testing::expect_gradients;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr TensorOptions f64{DType::f64};
using Numbers = std::vector<double>;
using Truth = std::vector<bool>;
using Tensors = std::vector<Tensor>;

Numbers values(const Tensor& x) { return x.to_vector<double>(); }

TEST(Factories, MakeTensorsLikeOthers) {
  const Tensor image = zeros({2, 3, 4, 5}, DType::bf16).channels_last();
  EXPECT_EQ(values(ones_like(tensor({1, 2}))), (Numbers{1, 1}));
  EXPECT_EQ(full_like(image, 2.5).dtype(), DType::bf16);
  EXPECT_TRUE(full_like(image, 2.5).is_channels_last());
  EXPECT_EQ(values(full_like(image, 2.5)), Numbers(120, 2.5));
  EXPECT_EQ(rand_like(image).shape(), image.shape());
  EXPECT_EQ(randn_like(counting({3})).dtype(), DType::f64);
  EXPECT_THROW(full_like(arange(2), 0.5), InvalidArgument);
}

TEST(Factories, RefuseRangesThatTheDtypeCannotHold) {
  EXPECT_THROW(linspace(-1.7e308, 1.7e308, 3, f64), InvalidArgument);
  EXPECT_EQ(values(linspace(-8e307, 8e307, 3, f64)), (Numbers{-8e307, 0, 8e307}));
  const TensorOptions bytes{DType::u8}, whole{DType::i32};
  EXPECT_THROW(linspace(0, 300, 3, bytes), InvalidArgument);
  EXPECT_THROW(linspace(-1, 5, 3, bytes), InvalidArgument);
  EXPECT_THROW(linspace(0.5, 3, 3, whole), InvalidArgument);
  EXPECT_EQ(values(linspace(0, 255, 4, bytes)), (Numbers{0, 85, 170, 255}));
  EXPECT_THROW(arange(0.0, 300.0, 1.0, bytes), InvalidArgument);
  EXPECT_THROW(arange(2.0, -2.0, -1.0, bytes), InvalidArgument);
  EXPECT_THROW(arange(257, bytes), InvalidArgument);
  EXPECT_EQ(values(arange(256, bytes)).back(), 255);
  EXPECT_EQ(values(arange(250.0, 260.0, 5.0, bytes)), (Numbers{250, 255}));
  EXPECT_EQ(arange(300.0, 300.0, 1.0, bytes).numel(), 0);
  EXPECT_THROW(arange(-1.7e308, 1.7e308, 1e308, f64), InvalidArgument);
  EXPECT_THROW(arange(0.0, 1e300, 1.0, f64), InvalidArgument);
}

TEST(Factories, MakeRangesAndUnitMatrices) {
  EXPECT_EQ(values(linspace(0, 1, 5)), (Numbers{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(values(linspace(1, 0, 4, f64)).back(), 0.0);
  EXPECT_EQ(values(linspace(0, 0.3, 4, f64)).back(), 0.3);
  EXPECT_EQ(values(linspace(2, 3, 1)), Numbers{2});
  EXPECT_EQ(linspace(2, 3, 0).numel(), 0);
  EXPECT_THROW(linspace(0, 1, -1), InvalidArgument);
  EXPECT_EQ(values(eye(2)), (Numbers{1, 0, 0, 1}));
  EXPECT_EQ(eye(0).shape(), (Shape{0, 0}));
  EXPECT_EQ(eye(3, {DType::boolean}).sum().item(), 3);
  EXPECT_EQ(values(arange(2, 5)), (Numbers{2, 3, 4}));
  EXPECT_EQ(arange(2, 5).dtype(), DType::i64);
  EXPECT_EQ(values(arange(5, 0, -2)), (Numbers{5, 3, 1}));
  EXPECT_EQ(values(arange(0.5, 2.0)), (Numbers{0.5, 1.5}));
  EXPECT_EQ(arange(0, 2, 0.5).dtype(), DType::f32);
  EXPECT_THROW(arange(std::int64_t{1} << 53, (std::int64_t{1} << 53) + 2), InvalidArgument);
}

TEST(Factories, TakeNumbersAndRows) {
  EXPECT_EQ(tensor(3.5).item(), 3.5);
  EXPECT_EQ(tensor(3.5).dim(), 0);
  EXPECT_EQ(tensor(std::int64_t{7}).dtype(), DType::i64);
  const Tensor rows = tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(values(rows), (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(tensor<float>({{1, 2}, {3, 4}}).dtype(), DType::f32);
  EXPECT_THROW(tensor({{1, 2}, {3}}), InvalidArgument);
}

TEST(Dimensions, MayBeOneNumber) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(x.sum(1)), (Numbers{3, 12}));
  EXPECT_EQ(x.mean(-1, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(values(sum(x, 0)), (Numbers{3, 5, 7}));
  EXPECT_EQ(values(flip(x, 1)), (Numbers{2, 1, 0, 5, 4, 3}));
  static_assert(!DimIndex<bool>);
  EXPECT_THROW(x.sum({0, -2}), InvalidArgument);
}

TEST(Numbers, StandOnEitherSide) {
  Tensor x = tensor<double>({0.5, -2}).set_requires_grad();
  EXPECT_EQ(values(1.0 / x), (Numbers{2, -0.5}));
  EXPECT_EQ(values(3 / arange(1, 3)), (Numbers{3, 1.5}));
  EXPECT_EQ(values(where(x > 0, x, 0)), (Numbers{0.5, 0}));
  EXPECT_EQ(values(where(x > 0, -1, x)), (Numbers{-1, -2}));
  EXPECT_THROW(where(x > 0, arange(2), 0.5), InvalidArgument);
  EXPECT_EQ(values(clamp_min(x, 0)), (Numbers{0.5, 0}));
  EXPECT_EQ(values(x.clamp_max(0)), (Numbers{0, -2}));
  EXPECT_EQ(values(clamp_max(arange(4), 2)), (Numbers{0, 1, 2, 2}));
  EXPECT_EQ(values(clamp_min(arange(4), 2)), (Numbers{2, 2, 2, 3}));
}

TEST(Numbers, InBracesArePadding) {
  EXPECT_EQ(values(pad(ones({2}), {1, 2})), (Numbers{0, 1, 1, 0, 0}));
  EXPECT_EQ(values(pad(arange(2), {1, 0}, 7)), (Numbers{7, 0, 1}));
  EXPECT_THROW(pad(arange(2), {1, 0}, 0.5), InvalidArgument);
}

TEST(Pooling, TakesSquareWindows) {
  const Tensor x = counting({1, 1, 4, 4});
  EXPECT_EQ(values(max_pool2d(x, 2)), (Numbers{5, 7, 13, 15}));
  EXPECT_TRUE(
      equal(max_pool2d(x, 3, 2, 1), max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1})));
  EXPECT_EQ(values(avg_pool2d(x, 2)), (Numbers{2.5, 4.5, 10.5, 12.5}));
}

TEST(Finite, TellsNumbersFromInfinitiesAndNan) {
  const Tensor x = tensor<float>({1, NAN, INFINITY, -INFINITY}), whole = arange(4);
  EXPECT_EQ(isnan(x).to_vector<bool>(), (Truth{false, true, false, false}));
  EXPECT_EQ(isinf(x).to_vector<bool>(), (Truth{false, false, true, true}));
  EXPECT_EQ(x.isfinite().to_vector<bool>(), (Truth{true, false, false, false}));
  EXPECT_TRUE(isfinite(whole).all().item<bool>());
  EXPECT_FALSE(logical_or(isnan(whole), isinf(whole)).any().item<bool>());
}

TEST(Std, IsTheRootOfTheVariance) {
  const Tensor x = tensor<double>({1, 3, 3, 7}).reshape({2, 2});
  EXPECT_EQ(values(std(x, 1, 0)), (Numbers{1, 2}));
  EXPECT_DOUBLE_EQ(x.std().item(), std::sqrt(x.var().item()));
}

TEST(Products, ChooseTheirRanks) {
  const Tensor a = counting({2, 3}), b = counting({3, 2}), batch = counting({4, 2, 3});
  EXPECT_TRUE(equal(mm(a, b), matmul(a, b)));
  EXPECT_TRUE(equal(batch.bmm(batch.transpose(1, 2)), matmul(batch, batch.transpose(1, 2))));
  EXPECT_EQ(values(outer(tensor({1.0, 2.0}), tensor({3.0, 4.0}))), (Numbers{3, 4, 6, 8}));
  EXPECT_THROW(mm(a, batch), InvalidArgument);
  EXPECT_THROW(bmm(batch, batch.narrow(0, 0, 1)), InvalidArgument);
  EXPECT_THROW(outer(a, b), InvalidArgument);
}

TEST(Parts, AreSplitUnboundAndRepeated) {
  const Tensor x = counting({2, 3});
  const Tensors parts = split(x, 2, 1), rows = unbind(x), columns = x.unbind(-1);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].shape(), (Shape{2, 1}));
  EXPECT_EQ(parts[0].data_ptr(), x.data_ptr());
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(values(rows[1]), (Numbers{3, 4, 5}));
  EXPECT_EQ(values(columns.at(2)), (Numbers{2, 5}));
  EXPECT_TRUE(unbind(zeros({0, 2})).empty());
  EXPECT_THROW(x.split(0), InvalidArgument);
  EXPECT_EQ(values(repeat(arange(2), {2, 2})), (Numbers{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(x.repeat({1, 0}).shape(), (Shape{2, 0}));
  EXPECT_THROW(x.repeat({2}), InvalidArgument);
  EXPECT_THROW(x.repeat({1, -1}), InvalidArgument);
  EXPECT_EQ(values(expand_as(ones({1}), arange(3))), (Numbers{1, 1, 1}));
}

TEST(Selection, FindsAndTakesElements) {
  const Tensor x = tensor<float>({0, 5, NAN, 0, -1, 0}).reshape({2, 3});
  EXPECT_EQ(values(nonzero(x)), (Numbers{0, 1, 0, 2, 1, 1}));
  EXPECT_EQ(nonzero(x).shape(), (Shape{3, 2}));
  EXPECT_EQ(nonzero(zeros({2, 0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(nonzero(tensor(2.0)).shape(), (Shape{1, 0}));
  EXPECT_EQ(values(masked_select(x, x < 1)), (Numbers{0, 0, -1, 0}));
  EXPECT_EQ(values(arange(3).masked_select(tensor({{1}, {0}, {1}}) > 0)),
            (Numbers{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(masked_select(x, x > 9).shape(), (Shape{0}));
  EXPECT_THROW(masked_select(x, x), InvalidArgument);
}

TEST(Selection, CountsAndScatters) {
  EXPECT_EQ(values(bincount(tensor<std::int64_t>({0, 2, 2}))), (Numbers{1, 0, 2}));
  EXPECT_EQ(values(bincount(tensor<std::int64_t>({1}), 3)), (Numbers{0, 1, 0}));
  EXPECT_EQ(bincount(arange(0)).numel(), 0);
  EXPECT_THROW(bincount(tensor<std::int64_t>({-1, 1})), InvalidArgument);
  EXPECT_THROW(bincount(ones({2})), InvalidArgument);
  const Tensor index = tensor<std::int64_t>({1, 1, 0}).reshape({3, 1});
  EXPECT_EQ(values(scatter(zeros({3, 2}), 1, index, 4)), (Numbers{0, 4, 0, 4, 4, 0}));
  EXPECT_EQ(values(full({3, 2}, infinity).scatter(1, index, 0))[1], 0.0);
  EXPECT_THROW(scatter(arange(3), 0, arange(3), 0.5), InvalidArgument);
}

TEST(Activations, AreThoseOfPyTorch) {
  const Tensor x = tensor<double>({-1, 0, 2, infinity, -infinity, NAN});
  const auto near = [](const Tensor& y, const Numbers& expected) {
    ASSERT_EQ(y.numel(), std::ssize(expected));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double value = values(y)[i];
      EXPECT_TRUE(value == expected[i] || std::abs(value - expected[i]) < 1e-6 ||
                  (std::isnan(value) && std::isnan(expected[i])))
          << value << ", expected " << expected[i];
    }
  };
  near(selu(x), {-1.1113307, 0, 2.1014020, infinity, -1.7580993, NAN});
  near(celu(x, 0.5), {-0.43233236, 0, 2, infinity, -0.5, NAN});
  near(celu(x, -2), {-1.2974425, 0, 2, infinity, -infinity, NAN});
  near(glu(tensor<double>({1, -3, 0, 2})), {0.5, -2.6423912});
  near(lerp(tensor<double>({1, 2}), tensor<double>({3, -2}), 1.0), {3, -2});
  EXPECT_THROW(celu(x, 0), InvalidArgument);
  EXPECT_THROW(glu(ones({3})), InvalidArgument);
  EXPECT_THROW(glu(ones({})), InvalidArgument);
  EXPECT_EQ(glu(ones({3, 0})).shape(), (Shape{3, 0}));
  near(glu(tensor<double>({1, -3}), tensor<double>({0, 2})), {0.5, -2.6423912});
  EXPECT_EQ(lerp(ones({2}, DType::bf16), ones({2}, DType::bf16), 0.3).dtype(), DType::bf16);
}

// f32 holds the difference of weights by which bf16 alone would miss b.
TEST(Lerp, ReachesItsEndsExactly) {
  const Tensor a = full({1}, 1e8), b = full({1}, 0.1), whole = ones({1});
  EXPECT_EQ(lerp(a, b, whole).item<float>(), 0.1F);
  EXPECT_EQ(lerp(a, b, 1.0).item<float>(), 0.1F);
  EXPECT_EQ(lerp(a, b, whole * 0).item<float>(), 1e8F);
}

TEST(Rearrangements, RepeatSlicesAndMakeDiagonalsAndPixels) {
  const Tensor x = arange(6).reshape({3, 2}), counts = tensor<std::int64_t>({1, 0, 2});
  EXPECT_EQ(values(repeat_interleave(arange(2), 2)), (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(values(repeat_interleave(x, counts, 0)), (Numbers{0, 1, 4, 5, 4, 5}));
  EXPECT_EQ(values(repeat_interleave(x, tensor<std::int64_t>({2}), -1).select(0, 0)),
            (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(repeat_interleave(x, 0, 1).shape(), (Shape{3, 0}));
  EXPECT_EQ(values(repeat_interleave(tensor(2.5), 2)), (Numbers{2.5, 2.5}));
  EXPECT_THROW(repeat_interleave(x, -1), InvalidArgument);
  EXPECT_THROW(repeat_interleave(x, counts, 1), InvalidArgument);
  EXPECT_THROW(repeat_interleave(x, counts - 1, 0), InvalidArgument);
  EXPECT_THROW(repeat_interleave(x, ones({3}), 0), InvalidArgument);
  EXPECT_EQ(values(diag(tensor<double>({1, infinity}), 1)),
            (Numbers{0, 1, 0, 0, 0, infinity, 0, 0, 0}));
  EXPECT_EQ(values(diag(x)), (Numbers{0, 3}));
  EXPECT_EQ(values(diagonal(x, -1)), (Numbers{2, 5}));
  EXPECT_EQ(diag(arange(0)).shape(), (Shape{0, 0}));
  EXPECT_THROW(diag(ones({1, 1, 1})), InvalidArgument);
  EXPECT_EQ(values(pixel_shuffle(arange(8).reshape({4, 1, 2}), 2)),
            (Numbers{0, 2, 1, 3, 4, 6, 5, 7}));
  const Tensor images = counting({2, 1, 9, 2, 1});
  EXPECT_EQ(pixel_shuffle(images, 3).shape(), (Shape{2, 1, 1, 6, 3}));
  EXPECT_TRUE(equal(pixel_unshuffle(pixel_shuffle(images, 3), 3), images));
  EXPECT_THROW(pixel_shuffle(ones({2, 6, 2, 2}), 2), InvalidArgument);
  EXPECT_THROW(pixel_unshuffle(ones({2, 6, 2, 3}), 2), InvalidArgument);
  EXPECT_THROW(pixel_shuffle(ones({2, 2}), 1), InvalidArgument);
}

TEST(Statistics, AreThoseOfPyTorch) {
  const Tensor x = tensor<double>({{1, -2, 0}, {3, NAN, 2}});
  const Tensor line = x[0];
  for (const auto& [p, expected] : {std::pair{0.0, 2.0},
                                    {1.0, 3.0},
                                    {0.5, 5.8284271},
                                    {3.0, 2.0800838},
                                    {-1.0, 0.0},
                                    {infinity, 2.0},
                                    {-infinity, 0.0}}) {
    EXPECT_NEAR(vector_norm(line, p).item(), expected, 1e-6) << p;
    EXPECT_EQ(std::isnan(vector_norm(x, p, 1)[1].item()), p != 0) << p;
  }
  EXPECT_EQ(vector_norm(zeros({0, 2}), 3, 0).shape(), (Shape{2}));
  EXPECT_THROW(vector_norm(zeros({0, 2}), infinity, 0), InvalidArgument);
  EXPECT_THROW(vector_norm(zeros({0}), -1), InvalidArgument);
  EXPECT_THROW(vector_norm(x, NAN), InvalidArgument);
  EXPECT_THROW(vector_norm(arange(2)), Unsupported);
  EXPECT_EQ(values(median(line, 0).second), Numbers{2});
  EXPECT_EQ(values(median(x, 1).second), (Numbers{2, 1}));
  EXPECT_TRUE(std::isnan(median(x, 1).first[1].item()) && std::isnan(median(x).item()));
  EXPECT_EQ(values(median(tensor<std::int64_t>({4, 1, 3, 2}))), Numbers{2});
  EXPECT_EQ(values(median(tensor<std::uint8_t>({255, 0, 7}), 0, true).first), Numbers{7});
  EXPECT_THROW(median(zeros({2, 0}), 1), InvalidArgument);
  EXPECT_NEAR(quantile(line, 0.3).item(), -0.8, 1e-12);
  EXPECT_TRUE(std::isnan(quantile(x, 0.3, 1)[1].item()));
  EXPECT_EQ(values(quantile(line, tensor<double>({0, 0.75, 1}))), (Numbers{-2, 0.5, 1}));
  EXPECT_EQ(quantile(x, tensor<double>({0.5}), -1, true).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(quantile(x, 0.5, 0, true).shape(), (Shape{1, 3}));
  for (const double wrong : {-0.1, 1.1, double{NAN}})
    EXPECT_THROW(quantile(x, wrong), InvalidArgument);
  EXPECT_THROW(quantile(x, tensor<double>({0, 2})), InvalidArgument);
  EXPECT_THROW(quantile(zeros({0}), 0.5), InvalidArgument);
  EXPECT_THROW(quantile(arange(2), 0.5), Unsupported);
}

TEST(Statistics, MultiplyAndMeasureDistances) {
  EXPECT_EQ(values(cumprod(arange(1, 7), 0)), (Numbers{1, 2, 6, 24, 120, 720}));
  EXPECT_EQ(cumprod(ones({2}, DType::boolean), 0).dtype(), DType::i64);
  EXPECT_EQ(values(cumprod(tensor<double>({2, 0, infinity, 3}), 0)).at(1), 0);
  EXPECT_TRUE(std::isnan(values(cumprod(tensor<double>({2, 0, infinity, 3}), 0)).at(3)));
  EXPECT_EQ(cumprod(zeros({2, 0}), -1).shape(), (Shape{2, 0}));
  const Tensor one = ones({1, 3});
  EXPECT_FALSE(cumprod(one, 0).is_same(one));
  const Tensor a = tensor({{0.0, 0.0}, {3.0, 4.0}});
  EXPECT_EQ(values(cdist(a, a)), (Numbers{0, 5, 5, 0}));
  EXPECT_EQ(values(cdist(a, a, 1)), (Numbers{0, 7, 7, 0}));
  EXPECT_EQ(cdist(zeros({4, 2, 3}), zeros({0, 3})).shape(), (Shape{4, 2, 0}));
  EXPECT_EQ(values(cdist(zeros({1, 0}), zeros({2, 0}), infinity)), (Numbers{0, 0}));
  EXPECT_THROW(cdist(a, zeros({2, 3}, f64)), InvalidArgument);
  EXPECT_THROW(cdist(a, a[0]), InvalidArgument);
  EXPECT_THROW(cdist(a, a, -1), InvalidArgument);
}

TEST(Drawing, GivesWholeNumbersPermutationsAndTruth) {
  Generator generator(3), same(3);
  const Tensor dice = randint(-1, 5, {3000}, {.dtype = DType::i32}, generator);
  EXPECT_EQ(dice.dtype(), DType::i32);
  EXPECT_THAT(values(bincount((dice + 1).to(DType::i64))), ::testing::Each(::testing::Gt(400)));
  EXPECT_EQ(dice.min().item(), -1);
  EXPECT_EQ(dice.max().item(), 4);
  EXPECT_TRUE(equal(dice, randint(-1, 5, {3000}, {.dtype = DType::i32}, same)));
  EXPECT_EQ(values(randint(7, 8, {3})), (Numbers{7, 7, 7}));
  EXPECT_THROW(randint(2, 2, {1}), InvalidArgument);
  const Tensor order = randperm(100, cpu, generator);
  EXPECT_TRUE(equal(sort(order).first, arange(100)));
  EXPECT_FALSE(equal(order, arange(100)));
  const Tensor chance = full({2000}, 0.25, DType::bf16);
  EXPECT_EQ(bernoulli(chance).dtype(), DType::bf16);
  EXPECT_NEAR(bernoulli(chance, generator).to(DType::f32).mean().item(), 0.25, 0.05);
  EXPECT_EQ(bernoulli(ones({500})).sum().item(), 500);
  EXPECT_EQ(bernoulli(zeros({500})).sum().item(), 0);
  EXPECT_THROW(bernoulli(full({2}, 1.5)), InvalidArgument);
  EXPECT_THROW(bernoulli(arange(2)), Unsupported);
}

TEST(Members, AreTheFunctionsOfTheirNamesToo) {
  const Tensor x = tensor<double>({1.5, -0.5, 2.5, 0.25}).reshape({2, 2});
  const auto same = [](const Tensor& a, const Tensor& b) { EXPECT_TRUE(equal(a, b)); };
  same(x.sin(), sin(x));
  same(x.floor(), floor(x));
  same(x.neg(), -x);
  same(x.prod(0), prod(x, 0));
  same(x.amax(1), amax(x, 1));
  same(x.sort().first, sort(x).first);
  same(x.topk(1).second, argmax(x, 1, true));
  same(x.argsort(0, true), argsort(x, 0, true));
  same(x.flip({0}), flip(x, 0));
  same(x.tril(), tril(x));
  same(x.chunk(2).at(1), chunk(x, 2).at(1));
  same(x.gt(1), x > 1);
  same(x.ge(x), x == x);
  same((x > 1).logical_not(), x <= 1);
  same(x.expand_as(zeros({3, 2, 2})).sum(0), x * 3);
}

// The elements that end at one lie within f64 where the product of a few of them is beyond f32.
TEST(ComposedOps, ProductsOfF32AreRoundedOnceAndNeedNotFitOnTheWay) {
  EXPECT_EQ(values(cumprod(tensor<float>({0.f, 1e30f, 1e30f, 1.f}), 0)), (Numbers{0, 0, 0, 0}));
  const Tensor back = cumprod(tensor<float>({1e-30f, 1e30f, 1e30f, 1e-30f}), 0);
  EXPECT_TRUE(allclose(back, tensor<float>({1e-30f, 1.f, 1e30f, 1.f}), 1e-6, 0));
  const Tensor last = cumprod(full({5000}, 1.0001f), 0)[-1];
  EXPECT_NEAR(last.item() / std::pow(double{1.0001f}, 5000), 1, 1e-7);
}

TEST(ComposedOps, SlopeOfCeluDoesNotCancelFarBelowZero) {
  Tensor x = tensor<float>({-6.f, -20.f});
  x.set_requires_grad(true);
  sum(celu(x)).backward();
  EXPECT_TRUE(allclose(x.grad(), exp(x.detach()), 1e-6, 0));
}

TEST(ComposedOps, SharesOfQuantileGetGradients) {
  Tensor q = tensor<double>({0.3, 0.5});
  q.set_requires_grad(true);
  sum(quantile(tensor<double>({1, 4, 9, 16}), q)).backward();
  EXPECT_TRUE(allclose(q.grad(), tensor<double>({9, 15})));
}

TEST(ComposedOps, HaveTheRightGradients) {
  manual_seed(5);
  const Tensor x = rand({2, 3}, f64) + 0.5, y = rand({2, 3}, f64) + 0.5, v = rand({4}, f64);
  const Tensor index = tensor<std::int64_t>({2, 0}).reshape({2, 1});
  const Tensor mask = tensor({{1, 0, 1}, {0, 1, 1}}) > 0;
  expect_gradients([](const Tensors& in) { return 2.0 / in[0]; }, {x});
  expect_gradients([](const Tensors& in) { return in[0].std(1); }, {x});
  expect_gradients([&](const Tensors& in) { return where(mask, in[0], 2) * in[0]; }, {x});
  expect_gradients([](const Tensors& in) { return outer(in[0], in[1]); }, {v, v * 2});
  expect_gradients([](const Tensors& in) { return in[0].repeat({2, 1, 3}).square(); }, {x});
  expect_gradients(
      [](const Tensors& in) { return in[0].unbind(1).at(2) * in[0].split(2).at(0).sum(1); }, {x});
  expect_gradients([&](const Tensors& in) { return in[0].masked_select(mask).square(); }, {x});
  expect_gradients([&](const Tensors& in) { return in[0].scatter(1, index, 3).square(); }, {x});
  expect_gradients([](const Tensors& in) { return pad(in[0], {1, 2}, 1).square(); }, {x});
  expect_gradients([](const Tensors& in) { return clamp_min(in[0], 0.9) * clamp_max(in[1], 0.7); },
                   {x, y});
  expect_gradients([](const Tensors& in) { return bmm(in[0], in[1]); },
                   {rand({2, 3, 2}, f64), rand({2, 2, 3}, f64)});
}

}  // namespace
}  // namespace lockstep
