#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/half.hpp"

namespace lockstep {
namespace {

/// A 16-bit format, by its definition in IEEE 754: computed in double, exactly.
template <class T, int exponent_bits, int fraction_bits>
struct Format {
  using type = T;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr unsigned infinity = ((1u << exponent_bits) - 1) << fraction_bits;

  static double value(unsigned pattern) {
    const int exponent = static_cast<int>(pattern >> fraction_bits) & ((1 << exponent_bits) - 1);
    const unsigned fraction = pattern & ((1u << fraction_bits) - 1);
    const double sign = pattern & 0x8000u ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
    const unsigned whole = exponent ? fraction | (1u << fraction_bits) : fraction;
    return sign * std::ldexp(whole, std::max(exponent, 1) - bias - fraction_bits);
  }
};

template <class F>
class HalfFormat : public ::testing::Test {};
using Formats = ::testing::Types<Format<BFloat16, 8, 7>, Format<Half, 5, 10>>;
TYPED_TEST_SUITE(HalfFormat, Formats);

TYPED_TEST(HalfFormat, WidensEveryPatternExactlyAndBack) {
  using T = typename TypeParam::type;
  for (unsigned pattern = 0; pattern < 0x10000; ++pattern) {
    const float wide = static_cast<float>(T::from_bits(static_cast<std::uint16_t>(pattern)));
    const double expected = TypeParam::value(pattern);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << pattern;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(wide)))) << pattern;
    } else {
      ASSERT_EQ(wide, expected) << pattern;
      ASSERT_EQ(std::signbit(wide), (pattern & 0x8000u) != 0) << pattern;
      ASSERT_EQ(T(wide).bits, pattern);
    }
  }
}

TYPED_TEST(HalfFormat, RoundsMidpointsToEvenAndTheirNeighboursToTheNearest) {
  using T = typename TypeParam::type;
  for (unsigned pattern = 0; pattern < TypeParam::infinity; ++pattern)
    for (const float sign : {1.0f, -1.0f}) {
      const unsigned sign_bit = sign < 0 ? 0x8000u : 0u, above = pattern + 1;
      const double low = TypeParam::value(pattern);
      // The step to infinity has the size of the last finite one.
      const double high = above == TypeParam::infinity ? 2 * low - TypeParam::value(pattern - 1)
                                                       : TypeParam::value(above);
      const auto middle = static_cast<float>((low + high) / 2);
      if (static_cast<double>(middle) != (low + high) / 2) continue;  // below float's own step
      const unsigned even = pattern & 1 ? above : pattern;
      ASSERT_EQ(T(sign * middle).bits, even | sign_bit) << pattern;
      ASSERT_EQ(T(sign * std::nextafter(middle, 0.0f)).bits, pattern | sign_bit) << pattern;
      const float up = std::nextafter(middle, std::numeric_limits<float>::infinity());
      ASSERT_EQ(T(sign * up).bits, above | sign_bit) << pattern;
    }
}

TYPED_TEST(HalfFormat, KeepsNanQuietAndOverflowsToInfinity) {
  using T = typename TypeParam::type;
  const float signalling = std::bit_cast<float>(0x7F800001u);
  EXPECT_TRUE(std::isnan(static_cast<float>(T(signalling))));
  EXPECT_EQ(static_cast<float>(T(std::numeric_limits<float>::infinity())),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(static_cast<float>(T(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(T(-0.0f).bits, 0x8000u);
}

}  // namespace
}  // namespace lockstep
