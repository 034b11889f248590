#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/grad.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

// Values at the edges of a dtype's range and precision, on every backend.

namespace lockstep::test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::Place;

constexpr double infinity = std::numeric_limits<double>::infinity();

class OpNumerics : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
    scope_.emplace(GetParam());
  }
  TensorOptions in(DType dtype) const { return {dtype, GetParam().device}; }
  template <class T>
  Tensor values(std::initializer_list<T> list) const {
    return tensor<T>(list).to(GetParam().device);
  }

 private:
  std::optional<testing::PlaceScope> scope_;
};

TEST_P(OpNumerics, LossesOfLargeLogitsKeepTheirDifferences) {
  for (const double value : {1e4, 1e6, 1e7, 1e8}) {
    Tensor x = full({1, 2}, value, in(DType::f32)).set_requires_grad();
    const Tensor loss = cross_entropy(x, values<std::int64_t>({0}));
    loss.backward();
    EXPECT_NEAR(loss.item(), 0.693147, 1e-6) << value;
    EXPECT_THAT(x.grad().to_vector<double>(), ElementsAre(-0.5, 0.5)) << value;
  }
  const Tensor apart = values<float>({10000, 9990}).reshape({1, 2});
  EXPECT_NEAR(cross_entropy(apart, values<std::int64_t>({0})).item(), 4.53989e-05, 1e-7);
  const Tensor smoothed = cross_entropy(apart, values<std::int64_t>({0}), {.label_smoothing = 0.5});
  EXPECT_NEAR(smoothed.item(), 2.5 + 4.53989e-05, 1e-6);
  const Tensor logarithms = log_softmax(full({2}, 1e6, in(DType::f32)), 0);
  EXPECT_NEAR(logarithms.select(0, 0).item(), -0.693147, 1e-6);
}

/// Operands of linear_cross_entropy.
struct Classifier {
  Tensor input, weight, targets;

  Classifier(const Shape& rows, std::int64_t classes, const TensorOptions& options)
      : input(randn({rows[0], 12}, {DType::f32}).to(options.device, options.dtype)),
        weight(randn({classes, 12}, {DType::f32}).to(options.device, options.dtype)),
        targets(randint(0, classes, {rows[0]}).to(options.device)) {
    input.set_requires_grad(), weight.set_requires_grad();
  }
  Tensor composed() const { return cross_entropy(linear(input, weight), targets); }
  std::vector<Tensor> take_gradients() {
    std::vector<Tensor> gradients{input.grad().clone(), weight.grad().clone()};
    input.set_grad({}), weight.set_grad({});
    return gradients;
  }
};

TEST_P(OpNumerics, LinearCrossEntropyIsLinearThenCrossEntropy) {
  // 1,027 classes: rows of no multiple of 16 bytes.
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t chunk : {0, 7}) {
      Classifier c({20}, 1027, in(dtype));
      const Tensor whole = c.composed();
      whole.backward();
      const auto expected = c.take_gradients();
      const Tensor loss = linear_cross_entropy(c.input, c.weight, c.targets, {.chunk_rows = chunk});
      loss.backward();
      const auto gradients = c.take_gradients();
      const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 2e-3 : 1.6e-2;
      EXPECT_NEAR(loss.item(), whole.item(), 1e-5) << dtype;
      for (std::size_t i = 0; i < 2; ++i) {
        const Tensor apart = norm((gradients[i] - expected[i]).to(DType::f32));
        EXPECT_LE(apart.item(), tolerance * norm(expected[i].to(DType::f32)).item()) << dtype;
      }
    }
}

TEST_P(OpNumerics, LinearCrossEntropyTakesTheGradientThatComes) {
  Classifier c({6}, 9, in(DType::f32));
  const auto gradients_of = [&](const Tensor& loss) {
    loss.backward();
    return c.take_gradients();
  };
  const auto once = gradients_of(linear_cross_entropy(c.input, c.weight, c.targets));
  const auto scaled = gradients_of(linear_cross_entropy(c.input, c.weight, c.targets) * 65536.0);
  const Tensor loss = linear_cross_entropy(c.input, c.weight, c.targets);
  loss.backward(Tensor(), true);
  const auto twice = gradients_of(loss);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((once[i] * 65536.0).to_vector<float>(), scaled[i].to_vector<float>());
    EXPECT_EQ((once[i] * 2.0).to_vector<float>(), twice[i].to_vector<float>());
  }
}

TEST_P(OpNumerics, LinearCrossEntropyOfIgnoredRowsHasNoGradient) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Classifier c({4}, 9, in(dtype));
    const Tensor loss = linear_cross_entropy(c.input, c.weight, full({4}, -100, in(DType::i64)));
    EXPECT_TRUE(std::isnan(loss.item()));
    loss.backward();
    for (const Tensor& gradient : c.take_gradients())
      EXPECT_EQ(norm(gradient.to(DType::f32)).item(), 0.0) << dtype;
  }
}

// Probabilities of 1e-8 are nothing in f16, but their gradients times a loss scale are.
TEST_P(OpNumerics, LinearCrossEntropyKeepsSmallScaledGradientsInF16) {
  Classifier c({8}, 16, in(DType::f16));
  const NoGradGuard no_recording;
  c.input.copy_(full({8, 12}, 1.25, in(DType::f16)));
  c.weight.copy_(full({16, 12}, 0.0, in(DType::f16)));
  c.weight.slice(0, 3, 4).copy_(full({1, 12}, 1.25, in(DType::f16)));
  const GradModeGuard recording(true);
  const auto gradient_of = [&](const Tensor& loss) {
    (loss * 65536.0).backward();
    return c.take_gradients()[1].to(DType::f32).select(0, 0);
  };
  const Tensor targets = full({8}, 3, in(DType::i64));
  const Tensor whole = gradient_of(cross_entropy(linear(c.input, c.weight), targets));
  const Tensor chunked = gradient_of(linear_cross_entropy(c.input, c.weight, targets));
  EXPECT_GT(norm(whole).item(), 1e-4);
  EXPECT_LT(norm(whole - chunked).item(), 0.02 * norm(whole).item());
}

TEST_P(OpNumerics, LinearCrossEntropyTakesHalvesOfAnotherKindUnderAutocast) {
  for (const auto& [given, used] :
       {std::pair{DType::bf16, DType::f16}, {DType::f16, DType::bf16}}) {
    Classifier c({20}, 40, in(given));
    c.composed().backward();
    const auto expected = c.take_gradients();
    {
      const amp::Autocast mixed(used);
      linear_cross_entropy(c.input, c.weight, c.targets).backward();
    }
    const auto gradients = c.take_gradients();
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_LT(max(abs((gradients[i] - expected[i]).to(DType::f32))).item(), 0.02) << given;
  }
}

TEST_P(OpNumerics, LinearCrossEntropyHoldsTheLogitsOfAChunk) {
  Classifier c({64}, 4096, in(DType::f32));
  reset_peak_memory_stats(GetParam().device);
  const std::size_t before = memory_allocated(GetParam().device);
  linear_cross_entropy(c.input, c.weight, c.targets, {.chunk_rows = 4}).backward();
  const std::size_t peak = max_memory_allocated(GetParam().device) - before;
  EXPECT_LT(peak, 64 * 4096 * sizeof(float));
}

TEST_P(OpNumerics, LinearCrossEntropyRefusesWhatDoesNotFit) {
  const auto call = [&](const Shape& input, const Shape& weight, const Shape& targets,
                        const LinearCrossEntropyOptions& options = {}) {
    return linear_cross_entropy(zeros(input, in(DType::f32)), zeros(weight, in(DType::f32)),
                                zeros(targets, in(DType::i64)), options);
  };
  EXPECT_THROW(call({2, 3}, {5, 4}, {2}), InvalidArgument);
  EXPECT_THROW(call({2, 3}, {5, 3}, {3}), InvalidArgument);
  EXPECT_THROW(call({2, 3}, {0, 3}, {2}), InvalidArgument);
  EXPECT_THROW(call({2, 3}, {5, 3}, {2}, {.bias = zeros({4}, in(DType::f32))}), InvalidArgument);
  EXPECT_THROW(call({2, 3}, {5, 3}, {2}, {.label_smoothing = 2}), InvalidArgument);
  EXPECT_THROW(call({2, 3}, {5, 3}, {2}, {.reduction = Reduction::batch_mean}), InvalidArgument);
  EXPECT_THROW(call({2, 3}, {5, 3}, {2}, {.chunk_rows = -1}), InvalidArgument);
  EXPECT_TRUE(std::isnan(call({0, 3}, {5, 3}, {0}).item()));
  EXPECT_EQ(call({0, 3}, {5, 3}, {0}, {.reduction = Reduction::sum}).item(), 0.0);
}

TEST_P(OpNumerics, HalfPrecisionReductionsDoNotOverflowInside) {
  for (const double value : {300.0, 1e-4}) {
    Tensor x = full({1}, value, in(DType::f16)).set_requires_grad();
    const Tensor length = norm(x);
    EXPECT_EQ(length.item(), x.item());
    length.backward();
    EXPECT_NEAR(x.grad().item(), 1.0, 1e-3);
  }
  const Tensor wide = cat({full({500}, 10.0, in(DType::f16)), full({500}, -10.0, in(DType::f16))});
  EXPECT_NEAR(var(wide).item(), 100.1, 0.05);
  EXPECT_NEAR(logsumexp(zeros({70000}, in(DType::f16))).item(), std::log(70000.0), 0.01);
  EXPECT_EQ(var(wide).dtype(), DType::f16);
  EXPECT_EQ(logsumexp(wide).dtype(), DType::f16);
}

TEST_P(OpNumerics, PoolingOfLargeWindowsStaysAccurate) {
  const Tensor image = full({1, 1, 512, 512}, 0.1, in(DType::f32));
  EXPECT_NEAR(adaptive_avg_pool2d(image, 1).item(), 0.1, 1e-7);
  EXPECT_NEAR(avg_pool2d(image, {.kernel = 512}).item(), 0.1, 1e-7);
}

TEST_P(OpNumerics, PoolingToOnePixelIsTheMeanOfTheImage) {
  Tensor image = randn({2, 3, 40, 31}, in(DType::f64)).set_requires_grad();
  const Tensor weight = randn({2, 3, 1, 1}, in(DType::f64));
  for (const Tensor& pooled :
       {adaptive_avg_pool2d(image, 1), avg_pool2d(image, {.kernel = {40, 31}}),
        adaptive_avg_pool2d(image.channels_last(), 1)}) {
    EXPECT_LT(amax(abs(pooled - mean(image, {2, 3}, true))).item(), 1e-15);
    image.set_grad({});
    sum(pooled * weight).backward();
    EXPECT_LT(amax(abs(image.grad() - weight / (40.0 * 31))).item(), 1e-17);
  }
  // Padding counts.
  const Tensor padded = avg_pool2d(ones({1, 1, 2, 2}, in(DType::f32)), {.kernel = 4, .padding = 1});
  EXPECT_EQ(padded.item(), 0.25);
}

TEST_P(OpNumerics, WindowsThatDoNotFitAreRefusedInCeilModeToo) {
  for (const auto& [extent, kernel, stride] :
       {std::tuple{1, 3, 2}, {1, 5, 3}, {3, 5, 2}, {2, 5, 2}, {2, 4, 1}, {2, 3, 2}}) {
    const Tensor image = ones({1, 1, extent, 6}, in(DType::f32));
    const Pool2dOptions options{
        .kernel = {kernel, 1}, .stride = {stride, 1}, .padding = 0, .ceil_mode = true};
    // As without it but where a window that begins within may go beyond.
    if (extent - kernel + stride - 1 < 0)
      EXPECT_THROW(avg_pool2d(image, options), InvalidArgument) << extent << ' ' << kernel;
    else
      EXPECT_EQ(avg_pool2d(image, options).size(2), 1);
  }
}

TEST_P(OpNumerics, BoundsMayCross) {
  Tensor x = values<float>({-2, 0, 0.5, 1, 3}).set_requires_grad();
  const Tensor y = clamp(x, 1.0, 0.25);
  EXPECT_EQ(amin(y).item(), 0.25);
  EXPECT_EQ(amax(y).item(), 0.25);
  EXPECT_EQ(amax(clamp(x.detach().to(DType::i64), 3, 1)).item(), 1);
  EXPECT_EQ(amin(clamp(x.detach().to(DType::i64), 3, 1)).item(), 1);
  // Nothing passes, also where the gradient is recorded.
  for (const bool create_graph : {false, true})
    for (const Tensor& limited : {y, clamp_min(x, infinity), clamp_max(x, -infinity)}) {
      const Tensor dx = autograd::grad(limited.sum(), {x},
                                       {.retain_graph = true, .create_graph = create_graph})[0];
      EXPECT_EQ(amax(abs(dx)).item(), 0.0) << create_graph;
    }
  EXPECT_THROW(clamp(x, std::numeric_limits<double>::quiet_NaN(), 1.0), InvalidArgument);
  EXPECT_THROW(hardtanh(x, 1.0, 0.25), InvalidArgument);
}

TEST_P(OpNumerics, LossesOfProbabilitiesInHalfPrecisionAreF32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor logits = randn({4, 5}, in(dtype)).set_requires_grad();
    const Tensor targets = softmax(randn({4, 5}, in(DType::f32)), 1).to(dtype);
    const Tensor exact = cross_entropy(logits.to(DType::f64), targets.to(DType::f64));
    for (const Tensor& weight : {Tensor(), ones({5}, in(dtype))}) {
      const Tensor loss = cross_entropy(logits, targets, {.weight = weight});
      EXPECT_EQ(loss.dtype(), DType::f32);
      EXPECT_NEAR(loss.item(), exact.item(), 1e-6);
      EXPECT_EQ(autograd::grad(loss, {logits})[0].dtype(), dtype);
    }
  }
}

TEST_P(OpNumerics, ManyEqualExtremesShareTheirGradientInF16) {
  Tensor x = zeros({70000}, in(DType::f16)).set_requires_grad();
  amax(x, {0}).backward();
  EXPECT_NEAR(x.grad()[0].item(), 1.0 / 70000, 1e-7);
  EXPECT_NEAR(sum(x.grad().to(DType::f64)).item(), 1.0, 0.02);
}

TEST_P(OpNumerics, TheLargestOfManyAreAsOfFew) {
  Tensor x = randint(0, 50, {3, 200}, in(DType::i64)).to(DType::f32);
  x[1].slice(0, 7, 9).fill_(std::numeric_limits<double>::quiet_NaN());
  const auto [values, places] = topk(x, 100);
  const auto [few, few_places] = topk(x, 20);
  const auto [sorted, order] = sort(x.to(cpu), 1, true);
  EXPECT_TRUE(all(places.to(cpu) == order.slice(1, 0, 100)).item<bool>());
  EXPECT_TRUE(all(few_places.to(cpu) == order.slice(1, 0, 20)).item<bool>());
  EXPECT_TRUE(places.is_contiguous() && few_places.is_contiguous());
  EXPECT_TRUE(all(nan_to_num(values).to(cpu) == nan_to_num(sorted.slice(1, 0, 100))).item<bool>());
}

TEST_P(OpNumerics, GatherGradientsOfManyDuplicatesAddUp) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor table = zeros({1}, in(dtype)).set_requires_grad();
    sum(gather(table, 0, zeros({1000}, in(DType::i64)))).backward();
    EXPECT_EQ(table.grad().item(), 1000.0);
    EXPECT_EQ(table.grad().dtype(), dtype);
  }
}

TEST_P(OpNumerics, DivisionByATinyNumberDoesNotOverflow) {
  Tensor x = values<float>({0, 1e-10F, 1e-38F}).set_requires_grad();
  const Tensor y = x / 1e-39;
  const std::vector<double> quotients = y.to_vector<double>();
  EXPECT_EQ(quotients[0], 0.0);
  EXPECT_NEAR(quotients[1] / 1e29, 1.0, 1e-5);
  EXPECT_NEAR(quotients[2], 10.0, 1e-4);
  y.backward(full({3}, 1e-39, in(DType::f32)));
  EXPECT_NEAR(x.grad().to_vector<double>()[0], 1.0, 1e-5);
}

TEST_P(OpNumerics, GradientsOfADivisionDoNotSquareTheDivisor) {
  for (const auto& [x, y] : {std::pair{1e-30, 1e-25}, std::pair{1e20, 1e20}}) {
    const Tensor a = full({1}, x, in(DType::f32));
    Tensor b = full({1}, y, in(DType::f32)).set_requires_grad();
    div(a, b).backward();
    EXPECT_NEAR(b.grad().item() / (-(x / y) / y), 1.0, 1e-5);
  }
}

TEST_P(OpNumerics, ScalarFactorsAndTermsKeepTheSignOfZero) {
  const Tensor zero = values<double>({-0.0});
  for (const Tensor& same : {zero * 1.0, 1.0 * zero, zero - 0.0, zero / 1.0})
    EXPECT_TRUE(std::signbit(same.item()));
  EXPECT_FALSE(std::signbit((zero + 0.0).item()));
  EXPECT_FALSE(std::signbit((zero * -1.0).item()));
  Tensor changed = zero.clone();
  EXPECT_TRUE(std::signbit(changed.mul_(1.0).item()));
}

TEST_P(OpNumerics, VarianceWithoutDegreesOfFreedomIsInfinite) {
  EXPECT_EQ(var(values<float>({1, 2, 3}), {}, 5).item(), infinity);
  EXPECT_EQ(var(values<float>({1, 2, 3}), {}, 3).item(), infinity);
  EXPECT_TRUE(std::isnan(var(values<float>({1}), {}, 1).item()));
}

TEST_P(OpNumerics, StandardDeviationOfEqualValuesHasAGradientOf0) {
  Tensor x = values<double>({2, 2, 3, 1}).reshape({2, 2}).detach();
  x.set_requires_grad();
  x.std(1).sum().backward();
  const double slope = 1 / std::sqrt(2.0);
  EXPECT_THAT(x.grad().to(cpu).to_vector<double>(),
              ElementsAre(0, 0, DoubleNear(slope, 1e-12), DoubleNear(-slope, 1e-12)));
}

TEST_P(OpNumerics, SumsOfIntegersAndBoolsAreCountedIn64Bits) {
  const Tensor large = full({3}, 2000000000.0, in(DType::i32));
  const Tensor bytes = full({2, 3}, 200, in(DType::u8));
  EXPECT_EQ(sum(large).to_vector<std::int64_t>(), std::vector<std::int64_t>{6000000000});
  EXPECT_EQ(sum(large).dtype(), DType::i64);
  EXPECT_THAT(sum(bytes, {0}).to_vector<std::int64_t>(), ElementsAre(400, 400, 400));
  EXPECT_THAT(sum(bytes, {1}).to_vector<std::int64_t>(), ElementsAre(600, 600));
  EXPECT_THAT(cumsum(bytes, 0).to_vector<std::int64_t>(),
              ElementsAre(200, 200, 200, 400, 400, 400));
  const Tensor hits = eq(bytes, bytes);
  EXPECT_EQ(sum(hits).item(), 6.0);
  EXPECT_EQ(sum(hits).dtype(), DType::i64);
  EXPECT_THAT(cumsum(hits, 1).to_vector<std::int64_t>(), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_EQ(sum(zeros({0}, in(DType::boolean))).item(), 0.0);
}

TEST_P(OpNumerics, DivisionOfIntegersByANumberIsFloating) {
  for (const DType dtype : {DType::u8, DType::i32, DType::i64}) {
    const Tensor quotient = full({2}, 51, in(dtype)) / 255.0;
    EXPECT_EQ(quotient.dtype(), DType::f32);
    EXPECT_FLOAT_EQ(static_cast<float>(quotient.select(0, 1).item()), 0.2F);
  }
}

/// a // b of Python, by pairs: where the quotient rounds up to a whole number, infinities, zeros.
TEST_P(OpNumerics, FloorDivisionIsThatOfPython) {
  const double tenth[] = {9, 9, 9, 10};  // 0.1 as f64, f32 and bf16 is above it, as f16 below
  int next = 0;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const std::vector<double> as{1.0, -1.0, 7,  -7, 7,    -7, 6,  -6,       -5,        5,
                                 -5,  5,    -5, 0,  -0.0, 1,  -1, infinity, -infinity, 0};
    const std::vector<double> bs{0.1,       -0.1,      2,  2,  -2, -2, 3, 3, infinity, infinity,
                                 -infinity, -infinity, -7, -2, 2,  0,  0, 1, 1,        0};
    const double at_a_tenth = tenth[next++];
    const std::vector<double> expected{at_a_tenth, at_a_tenth, 3,         -4,  -4,  3,  2,
                                       -2,         -1,         0,         0,   -1,  0,  -0.0,
                                       -0.0,       infinity,   -infinity, NAN, NAN, NAN};
    const Tensor a = tensor(as).to(GetParam().device).to(dtype);
    const Tensor b = tensor(bs).to(GetParam().device).to(dtype);
    const Tensor quotient = div(a, b, RoundingMode::floor);
    EXPECT_EQ(quotient.dtype(), dtype);
    const std::vector<double> found = quotient.to_vector<double>();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto pair = ::testing::Message() << as[i] << " // " << bs[i] << " in " << dtype;
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(found[i])) << pair;
        continue;
      }
      EXPECT_EQ(found[i], expected[i]) << pair;
      EXPECT_EQ(std::signbit(found[i]), std::signbit(expected[i])) << pair;
    }
  }
}

TEST_P(OpNumerics, FloorDivisionOfIntegersRoundsDown) {
  using Whole = std::vector<std::int64_t>;
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const Tensor a = values<std::int64_t>({7, -7, 7, -7, 6, -6, 5, -5, least, least, least + 1});
  const Tensor b = values<std::int64_t>({2, 2, -2, -2, 3, 3, 0, 0, -1, 1, 2});
  EXPECT_EQ(div(a, b, RoundingMode::floor).to_vector<std::int64_t>(),
            (Whole{3, -4, -4, 3, 2, -2, 0, 0, least, least, least / 2}));
  const Tensor bytes = values<std::int64_t>({200, 255, 3, 0}).to(DType::u8);
  const Tensor divisors = values<std::int64_t>({7, 255, 0, 5}).to(DType::u8);
  EXPECT_EQ(div(bytes, divisors, RoundingMode::floor).to_vector<std::int64_t>(),
            (Whole{28, 1, 0, 0}));
}

TEST_P(OpNumerics, EmptyTensorsAreContiguousHoweverTheyWereMade) {
  const Tensor x = zeros({0, 3, 4}, in(DType::f32)).transpose(1, 2);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(x.flatten().shape(), (Shape{0}));
  EXPECT_EQ(x.reshape({2, 0, 5}).shape(), (Shape{2, 0, 5}));
  EXPECT_EQ(linear(x, ones({2, 3}, in(DType::f32))).shape(), (Shape{0, 4, 2}));
  EXPECT_EQ(relu(x).shape(), (Shape{0, 4, 3}));
  const Tensor logits = zeros({0, 5, 2, 2}, in(DType::f32));
  EXPECT_TRUE(std::isnan(cross_entropy(logits, zeros({0, 2, 2}, in(DType::i64))).item()));
  EXPECT_EQ(
      cross_entropy(logits, zeros({0, 2, 2}, in(DType::i64)), {.reduction = Reduction::sum}).item(),
      0.0);
}

TEST_P(OpNumerics, SoftmaxAndExtremesOfNothingHaveShapes) {
  for (const std::int64_t dim : {0, 1}) {
    EXPECT_EQ(softmax(zeros({0, 5}, in(DType::f32)), dim).shape(), (Shape{0, 5}));
    EXPECT_EQ(log_softmax(zeros({5, 0}, in(DType::f32)), dim).shape(), (Shape{5, 0}));
  }
  EXPECT_EQ(amax(zeros({0, 3}, in(DType::f32)), {1}).shape(), (Shape{0}));
  EXPECT_EQ(amin(zeros({0, 3}, in(DType::i32)), {1}, true).shape(), (Shape{0, 1}));
  EXPECT_THROW(amax(zeros({0, 3}, in(DType::f32)), {0}), InvalidArgument);
  EXPECT_THROW(amax(zeros({0}, in(DType::f32))), InvalidArgument);
}

TEST_P(OpNumerics, PoolingRefusesImagesWithoutAPixel) {
  // Padding alone has no largest element and no mean; no images at all have no windows.
  for (const Shape& shape : {Shape{1, 2, 0, 3}, Shape{1, 2, 3, 0}}) {
    const Tensor x = zeros(shape, in(DType::f32));
    EXPECT_THROW(max_pool2d(x, {.kernel = 2, .padding = 1}), InvalidArgument);
    EXPECT_THROW(avg_pool2d(x, {.kernel = 2, .padding = 1}), InvalidArgument);
    EXPECT_THROW(adaptive_avg_pool2d(x, 1), InvalidArgument);
  }
  const Tensor none = zeros({0, 2, 3, 3}, in(DType::f32));
  EXPECT_EQ(max_pool2d(none, {.kernel = 2}).shape(), (Shape{0, 2, 1, 1}));
  EXPECT_EQ(adaptive_avg_pool2d(none, 1).shape(), (Shape{0, 2, 1, 1}));
}

TEST_P(OpNumerics, BatchNormTakesParametersOfDifferentDtypes) {
  const Tensor x = randn({2, 3, 4, 4}, in(DType::f32)).to(DType::bf16);
  for (const bool training : {true, false}) {
    Tensor bias = zeros({3}, in(DType::f32)).set_requires_grad();
    const Tensor mean = zeros({3}, in(DType::f32)), variance = ones({3}, in(DType::f32));
    sum(batch_norm(x, mean, variance, {}, bias, {.training = training})).backward();
    EXPECT_EQ(bias.grad().dtype(), DType::f32);
    EXPECT_THAT(bias.grad().to_vector<double>(), ElementsAre(32, 32, 32));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OpNumerics, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

}  // namespace
}  // namespace lockstep::test
