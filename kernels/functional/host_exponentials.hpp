#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "functional/host_power.hpp"
#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Exponentials, logarithms, hyperbolic functions and the error function in float on the CPU, for
/// math.hpp.

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math::detail {

#define LOCKSTEP_MATH LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE

inline constexpr float infinity = __builtin_huge_valf();
inline constexpr float ln2_high = 0x1.62e4p-1f;    // short, so that n * ln2_high is exact
inline constexpr float ln2_low = 0x1.7f7d1cp-20f;  // ln 2 - ln2_high
inline constexpr float round_magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integer

/// 2^n for -126 <= n <= 127.
LOCKSTEP_MATH float power_of_two(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

/// x = n ln 2 + r with |r| <= ln(2) / 2, and e^r - 1.
struct ExpParts {
  std::int32_t n;
  float expm1_r;
};

LOCKSTEP_MATH ExpParts exp_parts(float x) {
  const float shifted = x * 1.44269504f + round_magic;
  const float n = shifted - round_magic;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float p = 1.394116203e-03f;
  p = p * r + 8.363205008e-03f;
  p = p * r + 4.166637361e-02f;
  p = p * r + 1.666657627e-01f;
  p = p * r + 5.000000000e-01f;
  return {std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(round_magic),
          r + r * r * p};
}

/// Keeps NaN.
LOCKSTEP_MATH float bounded(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return raised > high ? high : raised;
}

LOCKSTEP_MATH float magnitude_of(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

LOCKSTEP_MATH float with_sign_of(float magnitude, float sign) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(magnitude) & 0x7FFFFFFFu) |
                              (std::bit_cast<std::uint32_t>(sign) & 0x80000000u));
}

LOCKSTEP_MATH float exp_host(float x) {
  const ExpParts parts = exp_parts(bounded(x, -104.0f, 89.0f));
  // Two factors, because 2^n itself overflows before the product does, and to reach subnormals.
  const std::int32_t half = parts.n >> 1;
  return (1.0f + parts.expm1_r) * power_of_two(half) * power_of_two(parts.n - half);
}

LOCKSTEP_MATH float expm1_host(float x) {
  const ExpParts parts = exp_parts(bounded(x, -18.0f, 89.0f));
  // 2 (2^(n-1) p + 2^(n-1) - 1/2): the halved scale does not overflow early.
  const float scale = power_of_two(parts.n - 1);
  const float result = 2.0f * (scale * parts.expm1_r + (scale - 0.5f));
  return with_sign_of(parts.n == 0 ? parts.expm1_r : result, x);  // of -0 as well
}

/// x = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f) - f. For finite x above 0.
struct LogParts {
  float n, f, log1p_f_less_f;
};

LOCKSTEP_MATH LogParts log_parts(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float scaled = subnormal ? x * 0x1p23f : x;
  const auto word = std::bit_cast<std::int32_t>(scaled);
  constexpr std::int32_t sqrt_half = 0x3F3504F3;
  const std::int32_t exponent = (word - sqrt_half) >> 23;
  const auto mantissa =
      static_cast<std::uint32_t>(word) - (static_cast<std::uint32_t>(exponent) << 23);
  const float f = std::bit_cast<float>(mantissa) - 1.0f;
  float p = -7.634493023e-02f;
  p = p * f + 1.276157564e-01f;
  p = p * f - 1.316018306e-01f;
  p = p * f + 1.420175823e-01f;
  p = p * f - 1.662335730e-01f;
  p = p * f + 2.000122687e-01f;
  p = p * f - 2.500082104e-01f;
  p = p * f + 3.333333171e-01f;
  return {static_cast<float>(subnormal ? exponent - 23 : exponent), f, f * f * (f * p - 0.5f)};
}

/// The logarithm, to any base, whose value for finite x above 0 is `result`.
LOCKSTEP_MATH float log_of_any(float x, float result) {
  const float special = x == 0.0f ? -infinity : std::bit_cast<float>(0x7FC00000u);
  return x > 0.0f ? (x < infinity ? result : x) : special;
}

LOCKSTEP_MATH float log_host(float x) {
  const LogParts parts = log_parts(x);
  const float tail = parts.log1p_f_less_f + parts.n * ln2_low;
  return log_of_any(x, (tail + parts.f) + parts.n * ln2_high);
}

LOCKSTEP_MATH float log2_host(float x) {
  const LogParts parts = log_parts(x);
  // 1 / ln 2 in two parts, the first short, so that times f it rounds less.
  const float tail = parts.log1p_f_less_f * 1.44269504f + parts.f * 4.4269504e-01f;
  return log_of_any(x, (tail + parts.f) + parts.n);
}

LOCKSTEP_MATH float log10_host(float x) {
  const LogParts parts = log_parts(x);
  constexpr float log10_2_high = 0x1.344p-2f, log10_2_low = 4.605038981e-06f;
  const float tail = (parts.log1p_f_less_f + parts.f) * 0.434294482f + parts.n * log10_2_low;
  return log_of_any(x, tail + parts.n * log10_2_high);
}

LOCKSTEP_MATH float log1p_host(float x) {
  const float u = 1.0f + x;
  // What 1 + x rounded away comes back to first order.
  const float lost = x - (u - 1.0f);
  const float result = with_sign_of(log_host(u) + lost / u, x);  // of -0 as well
  return u > 0.0f && u < infinity ? result : log_host(u);
}

LOCKSTEP_MATH float tanh_host(float x) {
  const float magnitude = magnitude_of(x);
  const float e = expm1_host(2.0f * (magnitude > 10.0f ? 10.0f : magnitude));
  return with_sign_of(e / (e + 2.0f), x);
}

/// x for a small one: x + x z q(z), z = x^2.
LOCKSTEP_MATH float sinh_of_small(float x) {
  const float z = x * x;
  float p = 2.816946901e-06f;
  p = p * z + 1.983616033e-04f;
  p = p * z + 8.333350056e-03f;
  p = p * z + 1.666666650e-01f;
  return x + x * z * p;
}

/// e^x / 2 for x from 0 on, which is finite a little longer than e^x.
LOCKSTEP_MATH float half_exp(float x) {
  const ExpParts parts = exp_parts(bounded(x, 0.0f, 90.0f));
  const float scale = power_of_two(parts.n - 2);  // infinite at the bound
  return 2.0f * (scale * (1.0f + parts.expm1_r));
}

LOCKSTEP_MATH float sinh_host(float x) {
  const float magnitude = magnitude_of(x), half = half_exp(magnitude);
  const float large = half - 0.25f / half;
  return magnitude < 1.0f ? sinh_of_small(x) : with_sign_of(large, x);
}

LOCKSTEP_MATH float cosh_host(float x) {
  const float half = half_exp(magnitude_of(x));
  return half + 0.25f / half;
}

LOCKSTEP_MATH float atanh_host(float x) {
  const float magnitude = magnitude_of(x), z = x * x;
  float p = 1.766909722e-01f;
  p = p * z + 5.135835791e-02f;
  p = p * z + 1.182372797e-01f;
  p = p * z + 1.422276222e-01f;
  p = p * z + 2.000251828e-01f;
  p = p * z + 3.333330007e-01f;
  const float small = x + x * z * p;
  const float large = 0.5f * log_host((1.0f + magnitude) / (1.0f - magnitude));
  return magnitude < 0.5f ? small : with_sign_of(large, x);
}

/// In double: next to 0 and 1 their arguments' last bits count.
LOCKSTEP_MATH float asinh_host(float x) {
  const float magnitude = magnitude_of(x);
  const double t = static_cast<double>(magnitude);
  const auto result =
      static_cast<float>(log2_of_normal(t + __builtin_sqrt(t * t + 1.0)) * 0.693147180559945309);
  const bool is_itself = (magnitude < 0x1p-12f) | !(magnitude < infinity);
  return is_itself ? x : with_sign_of(result, x);
}

LOCKSTEP_MATH float acosh_host(float x) {
  const double t = static_cast<double>(x);
  const auto result =
      static_cast<float>(log2_of_normal(t + __builtin_sqrt(t * t - 1.0)) * 0.693147180559945309);
  const float special = x >= 1.0f ? x : std::bit_cast<float>(0x7FC00000u);
  return x >= 1.0f && x < infinity ? result : special;
}

LOCKSTEP_MATH float erf_host(float x) {
  const float t = magnitude_of(x);
  // erf(t) = 1 - e^(-t - t q(t)); past 4 it is 1.
  const float c = t > 4.0f ? 4.0f : t;
  float q = -9.256263853e-06f;
  q = q * c + 1.176412624e-04f;
  q = q * c - 6.328368346e-04f;
  q = q * c + 1.667027447e-03f;
  q = q * c - 1.603960778e-04f;
  q = q * c - 1.915306388e-02f;
  q = q * c + 1.027778305e-01f;
  q = q * c + 6.366193820e-01f;
  q = q * c + 1.283791720e-01f;
  const ExpParts parts = exp_parts(-c - c * q);
  const float scale = power_of_two(parts.n);
  return with_sign_of((1.0f - scale) - scale * parts.expm1_r, x);
}

#undef LOCKSTEP_MATH

}  // namespace math::detail
}  // namespace lockstep::functional::inline LOCKSTEP_ISA
