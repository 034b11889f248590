#include "arguments/random.hpp"

#include <algorithm>
#include <numeric>

#include "contract/backends.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::test {
namespace {

double mean_of(const Values& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const Values& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

class RandomContract : public ContractTest {
 protected:
  static constexpr PhiloxState state{42, 7};
  static constexpr std::int64_t count = 100003;  // neither whole tiles nor whole blocks

  /// A place in the memory of the device.
  PhiloxState* memory() {
    places_.push_back(array(DType::i64, {2}));
    return static_cast<PhiloxState*>(places_.back().view().data);
  }
  void set(PhiloxState* to, PhiloxState place) const {
    backend().random.set_place({.memory = to, .place = place}, stream());
  }
  kernels::RandomPlace place() {
    PhiloxState* const base = memory();
    set(base, state);
    return {.base = base};
  }

 private:
  std::vector<DeviceArray> places_;
};

TEST_P(RandomContract, WorkDrawsFromWhatTheMemorySaysWhenItRuns) {
  PhiloxState* const base = memory();
  const auto first = array({count}), second = array({count}), expected = array({count});
  const kernels::RandomPlace later{.base = base, .draws = 3};
  set(base, {.seed = 42, .offset = 4});
  backend().random.normal({.out = first, .random = later}, stream());
  set(base, {.seed = std::uint64_t{1} << 63 | 1, .offset = std::uint64_t{1} << 40});
  backend().random.normal({.out = second, .random = later}, stream());
  backend().random.normal({.out = expected, .random = place()}, stream());
  EXPECT_EQ(first.get(), expected.get());
  set(base, {.seed = std::uint64_t{1} << 63 | 1, .offset = (std::uint64_t{1} << 40) + 3});
  backend().random.normal({.out = expected, .random = {.base = base}}, stream());
  EXPECT_EQ(second.get(), expected.get());
  EXPECT_NE(second.get(), first.get());
}

TEST_P(RandomContract, UniformDrawsTheWordOfEachElement) {
  const auto out = array({count});
  backend().random.uniform({.out = out, .low = -1, .high = 3, .random = place()}, stream());
  Values expected;
  for (std::int64_t i = 0; i < count; ++i)
    expected.push_back(-1 + 4.0 * static_cast<double>(uniform_from_bits(
                                      state.word(static_cast<std::uint64_t>(i)))));
  EXPECT_TRUE(close(out.get(), expected, tolerance()));
  EXPECT_NEAR(mean_of(out.get()), 1.0, 0.02);
}

TEST_P(RandomContract, UniformStaysBelowItsUpperBound) {
  const auto largest = [&](double low, double high) {
    const auto out = array({count});
    backend().random.uniform({.out = out, .low = low, .high = high, .random = place()}, stream());
    const Values values = out.get();
    EXPECT_GE(*std::ranges::min_element(values), low);
    return *std::ranges::max_element(values);
  };
  EXPECT_LT(largest(0, 1), 1.0);
  EXPECT_LT(largest(1, 2), 2.0);
  EXPECT_LT(largest(1, 1.000001), 1.000001);
  EXPECT_LT(largest(-1, 0), 0.0);
  EXPECT_LT(largest(-2, -1), -1.0);
  EXPECT_EQ(largest(1, 1), 1.0);
}

TEST_P(RandomContract, NormalHasTheMomentsAskedFor) {
  const auto out = array({count});
  backend().random.normal({.out = out, .mean = 1.0, .deviation = 2.0, .random = place()}, stream());
  const Values values = out.get();
  EXPECT_NEAR(mean_of(values), 1.0, 0.03);
  EXPECT_NEAR(deviation_of(values), 2.0, 0.03);
  const double u = 1.0 - uniform_from_bits(state.word(6)), v = uniform_from_bits(state.word(7));
  const double radius = std::sqrt(-2 * std::log(u));
  EXPECT_NEAR(values[6], 1 + 2 * radius * std::cos(2 * M_PI * v), 0.03);
  EXPECT_NEAR(values[7], 1 + 2 * radius * std::sin(2 * M_PI * v), 0.03);
}

TEST_P(RandomContract, DropoutCountsInRowMajorOrderWhateverTheLayout) {
  const auto x = array({300, 70}).set(Values(21000, 1.0));
  const auto transposed = array({300, 70}, {1, 300}).set(Values(21000, 1.0));
  const auto out = array({300, 70}), other = array({300, 70}, {1, 300});
  backend().random.dropout({.out = out, .x = x, .p = 0.25, .random = place()}, stream());
  backend().random.dropout({.out = other, .x = transposed, .p = 0.25, .random = place()}, stream());
  EXPECT_EQ(out.get(), other.get());
  EXPECT_NEAR(mean_of(out.get()), 1.0, 0.02);
  for (std::uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(out.get()[i] != 0, uniform_from_bits(state.word(i)) >= 0.25f) << i;
  backend().random.dropout({.out = out, .x = x, .p = 1.0, .random = place()}, stream());
  EXPECT_EQ(out.get(), Values(21000, 0.0));
}

TEST_P(RandomContract, ThreadCountChangesNothing) {
  const auto draw = [&](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    const auto out = array({count}), kept = array({count});
    backend().random.normal({.out = out, .mean = 0, .deviation = 1, .random = place()}, stream());
    backend().random.dropout({.out = kept, .x = out, .p = 0.5, .random = place()}, stream());
    set_num_threads(before);
    return std::pair(out.get(), kept.get());
  };
  EXPECT_EQ(draw(1), draw(3));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
