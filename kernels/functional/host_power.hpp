#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Powers in float on the CPU, for math.hpp: 2^(y log2 x), in double, whose error is far below what
/// a float shows.

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math::detail {

/// The logarithm to the base 2 of a positive, finite and normal number, right to 2^-37 of it.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE double log2_of_normal(double x) {
  const auto word = std::bit_cast<std::int64_t>(x);
  // By the upper half alone: processors have all shifts of 32 bits, not of 64.
  const auto upper = static_cast<std::int32_t>(static_cast<std::uint64_t>(word) >> 32);
  constexpr std::int32_t sqrt_half = 0x3FE6A09E;
  const std::int32_t exponent = (upper - sqrt_half) >> 20;
  const double mantissa = std::bit_cast<double>(
      word - static_cast<std::int64_t>(
                 static_cast<std::uint64_t>(static_cast<std::int64_t>(exponent)) << 52));
  const double f = mantissa - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 3.40730172335378334e-01;
  p = p * z + 4.11672709515434665e-01;
  p = p * z + 5.77083585284141276e-01;
  p = p * z + 9.61796673338384922e-01;
  p = p * z + 2.88539008179009526e+00;
  return s * p + static_cast<double>(exponent);
}

/// 2^x for |x| up to 1000, right to 2^-29 of it.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE double exp2_of_bounded(double x) {
  constexpr double round_magic = 0x1.8p52;  // adding it rounds to integer
  const double shifted = x + round_magic, r = x - (shifted - round_magic);
  double p = 1.53458115063910474e-04;
  p = p * r + 1.33999312156529715e-03;
  p = p * r + 9.61848895897352528e-03;
  p = p * r + 5.55032877697661797e-02;
  p = p * r + 2.40226468906166807e-01;
  p = p * r + 6.93147205737261851e-01;
  p = p * r + 1.00000000055417004e+00;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) +
                               (std::bit_cast<std::uint64_t>(shifted) << 52));
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE bool is_whole(float x) {
  // Not by truncf, which processors without SSE 4.1 have no instruction for.
  const float magnitude = ::fabsf(x);
  return (magnitude >= 0x1p23f) | ((magnitude + 0x1p23f) - 0x1p23f == magnitude);
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float pow_host(float x, float y) {
  constexpr float infinity = __builtin_huge_valf();
  const float magnitude = ::fabsf(x);
  const bool is_finite = (magnitude > 0.0f) & (magnitude < infinity);
  // 0, infinity and NaN have logarithms of their own.
  const float special = magnitude == 0.0f ? -infinity : magnitude;
  const double logarithm = log2_of_normal(static_cast<double>(magnitude));
  const double exponent =
      static_cast<double>(y) * (is_finite ? logarithm : static_cast<double>(special));
  const double raised = exponent < -160.0 ? -160.0 : exponent;
  const auto power = static_cast<float>(exp2_of_bounded(raised > 160.0 ? 160.0 : raised));
  // 1 to any power, and anything to the power 0, is 1; so is -1 to an infinite one.
  const bool is_one = (y == 0.0f) | (x == 1.0f) | ((x == -1.0f) & (::fabsf(y) == infinity));
  const float positive = is_one ? 1.0f : power;
  // Negative numbers have whole powers only, and the odd ones are negative.
  const bool is_negative = std::bit_cast<std::int32_t>(x) < 0;
  const bool is_odd = is_whole(y) & !is_whole(0.5f * y);
  const float result = (is_negative & is_odd) ? -positive : positive;
  return (is_negative & is_finite & !is_whole(y)) ? std::bit_cast<float>(0x7FC00000u) : result;
}

}  // namespace math::detail
}  // namespace lockstep::functional::inline LOCKSTEP_ISA
