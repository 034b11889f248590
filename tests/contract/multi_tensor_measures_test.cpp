#include <cmath>
#include <cstring>

#include "contract/multi_tensor.hpp"
#include "functional/fingerprint.hpp"

// What is measured of many arrays: squares, norms, fingerprints.

namespace lockstep::test {
namespace {

TEST_P(MultiTensorContract, ClipsByTheNormOfAll) {
  const auto a = array({70000}).randomize(1), b = array({33}).randomize(2);
  const auto total = array(DType::f64, {2});
  const std::vector<ArrayView> arrays{a, b};
  const Values before = a.get();
  double expected = 0;
  for (const auto* each : {&a, &b})
    for (const double value : each->get()) expected += value * value;
  family().square_sum({.out = total, .arrays = arrays}, stream());
  EXPECT_NEAR(total.get()[0], expected, 1e-6 * expected);
  const auto norm = array(DType::f64, {1}).set({std::sqrt(expected)});
  family().clip({.arrays = arrays, .norm = norm, .limit = 1e9}, stream());
  EXPECT_EQ(a.get(), before);
  family().clip({.arrays = arrays, .norm = norm, .limit = 2.0}, stream());
  Values scaled = before;
  for (double& value : scaled) value *= 2.0 / (std::sqrt(expected) + 1e-6);
  EXPECT_TRUE(close(a.get(), scaled, tolerance(1024)));
}

TEST_P(MultiTensorContract, ASumOfSquaresIsFiniteExactlyIfAllElementsAre) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double large = GetParam().dtype == DType::f16 ? 65504 : std::ldexp(1.0, 120);
  auto a = array({70000}).randomize(1);
  const auto b = array({3}).set({large, -large, 1});
  const auto total = array(DType::f64, {2});
  const std::vector<ArrayView> arrays{a, b};
  family().square_sum({.out = total, .arrays = arrays}, stream());
  EXPECT_NEAR(total.get()[0] / (2 * large * large), 1, 1e-3);
  if (GetParam().dtype == DType::f64) {  // squares that are finite one by one, not together
    const auto most = array({1}).set({1e154});
    family().square_sum({.out = total, .arrays = std::vector<ArrayView>(4, most)}, stream());
    EXPECT_TRUE(std::isfinite(total.get()[0] + total.get()[1]));
  }
  for (const double bad : {infinity, -infinity, std::nan("")}) {
    Values values = a.get();
    values[69999] = bad;
    a.set(values);
    family().square_sum({.out = total, .arrays = arrays}, stream());
    EXPECT_FALSE(std::isfinite(total.get()[0] + total.get()[1])) << bad;
  }
}

TEST_P(MultiTensorContract, ANormIsRightHoweverLargeTheElementsAre) {
  const double most = GetParam().dtype == DType::f64   ? 1e300
                      : GetParam().dtype == DType::f16 ? 65504
                                                       : std::ldexp(1.0, 120);
  const auto total = array(DType::f64, {2}), norm = array(DType::f64, {1}),
             divisor = array(DType::f64, {1}), found_inf = array(DType::f64, {1});
  for (const double large : {most, std::sqrt(most), std::cbrt(most), 1.0}) {
    Values values(70000, 0.0);
    values[1] = values[69999] = large / 2;  // in chunks of their own
    const auto a = array({70000}).set(values), b = array({3}).set({3 * (large / 4), 0, 0});
    const double first = a.get()[1], last = b.get()[0];  // as the dtype has them
    family().square_sum({.out = total, .arrays = std::vector<ArrayView>{a, b}}, stream());
    family().gradient_scaling({.square_sum = total,
                               .loss_scale = {},
                               .limit = 1.0,
                               .norm = norm,
                               .divisor = divisor,
                               .found_inf = found_inf},
                              stream());
    const double expected = std::hypot(first, first, last);
    EXPECT_NEAR(norm.get()[0] / expected, 1, 1e-6) << large;
    EXPECT_NEAR(divisor.get()[0] / std::max(1.0, expected), 1, 1e-5) << large;
    EXPECT_EQ(found_inf.get()[0], 0) << large;
  }
}

TEST_P(MultiTensorContract, GradientScalingTakesTheLossScaleOffAndLimitsTheNorm) {
  const auto norm = array(DType::f64, {1}), divisor = array(DType::f64, {1}),
             found_inf = array(DType::f64, {1}), scale = array(DType::f64, {1}).set({8});
  const auto measure = [&](double square_sum, const ArrayView& loss_scale, double limit) {
    const auto sum = array(DType::f64, {2}).set({square_sum, 0});
    family().gradient_scaling({.square_sum = sum,
                               .loss_scale = loss_scale,
                               .limit = limit,
                               .norm = norm,
                               .divisor = divisor,
                               .found_inf = found_inf},
                              stream());
    return Values{norm.get()[0], divisor.get()[0], found_inf.get()[0]};
  };
  EXPECT_EQ(measure(256, scale, 3), (Values{2, 8, 0}));
  EXPECT_EQ(measure(256, {}, 1e9), (Values{16, 1, 0}));
  EXPECT_NEAR(measure(256, scale, 0.5)[1], 32, 1e-4);
  EXPECT_EQ(measure(256, scale, 0)[1], std::numeric_limits<double>::infinity());
  EXPECT_EQ(measure(std::nan(""), scale, 3)[2], 1);
  EXPECT_EQ(measure(std::numeric_limits<double>::infinity(), {}, 3)[2], 1);
}

TEST_P(MultiTensorContract, FingerprintsTellArraysApart) {
  const auto fingerprint_of = [&](const Values& values) {
    std::uint64_t sum = 0;
    dispatch_floating(dtype(), "fingerprint", [&]<class T>(TypeTag<T>) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T value = static_cast<T>(static_cast<AccumulateType<T>>(values[i]));
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof value);
        sum += functional::fingerprint_of(bits, static_cast<std::int64_t>(i));
      }
    });
    return static_cast<double>(static_cast<std::int64_t>(sum));
  };
  const auto long_one = array({70'001}).randomize(1), empty = array({0});
  auto other = array({33});
  Values swapped = random_values(33, 2);
  other.set(swapped);
  const auto integers = array(DType::u8, {3}).set({1, 2, 3});
  const auto measure = [&] {
    const auto out = array(DType::i64, {4}).set(Values(4, 0.0));
    const std::vector<ArrayView> arrays{long_one, empty, other, integers};
    family().fingerprint({.out = out, .arrays = arrays}, stream());
    return out.get();
  };
  const Values before = measure();
  EXPECT_EQ(before[0], fingerprint_of(long_one.get()));
  EXPECT_EQ(before[1], 0);
  EXPECT_EQ(before[2], fingerprint_of(other.get()));
  EXPECT_EQ(before, measure());
  std::swap(swapped[7], swapped[8]);
  other.set(swapped);
  EXPECT_NE(measure()[2], before[2]);
  EXPECT_EQ(measure()[3], before[3]);
}

}  // namespace
}  // namespace lockstep::test
