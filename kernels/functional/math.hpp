#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "functional/host_angles.hpp"
#include "functional/host_power.hpp"
#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Elementary functions. In float on the CPU they are own, branch-free code that the compiler
/// vectorises inside any loop, right to about 2 ulp, with the usual values at infinity, NaN and
/// overflow. In double, and on the device, the native functions serve.
///
/// Coefficients are minimax fits (Lawson's iteration on Chebyshev nodes) made for this file; the
/// reductions are those of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions".

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math {

#define LOCKSTEP_MATH LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE

namespace detail {

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
  return parts.n == 0 ? parts.expm1_r : result;
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
  const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
  const float e = expm1_host(2.0f * (magnitude > 10.0f ? 10.0f : magnitude));
  return with_sign_of(e / (e + 2.0f), x);
}

LOCKSTEP_MATH float erf_host(float x) {
  const float t = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
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

}  // namespace detail

// One line per function: native on the device and in double, own in float on the host.
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_MATH_FUNCTION(function, own, native)           \
  LOCKSTEP_MATH float function(float x) { return ::native(x); } \
  LOCKSTEP_MATH double function(double x) { return ::function(x); }
#else
#define LOCKSTEP_MATH_FUNCTION(function, own, native)      \
  LOCKSTEP_MATH float function(float x) { return own(x); } \
  LOCKSTEP_MATH double function(double x) { return std::function(x); }
#endif
LOCKSTEP_MATH_FUNCTION(exp, detail::exp_host, expf)
LOCKSTEP_MATH_FUNCTION(expm1, detail::expm1_host, expm1f)
LOCKSTEP_MATH_FUNCTION(log, detail::log_host, logf)
LOCKSTEP_MATH_FUNCTION(log1p, detail::log1p_host, log1pf)
LOCKSTEP_MATH_FUNCTION(tanh, detail::tanh_host, tanhf)
LOCKSTEP_MATH_FUNCTION(erf, detail::erf_host, erff)
LOCKSTEP_MATH_FUNCTION(sin, detail::sin_host, sinf)
LOCKSTEP_MATH_FUNCTION(cos, detail::cos_host, cosf)
LOCKSTEP_MATH_FUNCTION(tan, detail::tan_host, tanf)
LOCKSTEP_MATH_FUNCTION(atan, detail::atan_host, atanf)
LOCKSTEP_MATH_FUNCTION(asin, std::asin, asinf)
LOCKSTEP_MATH_FUNCTION(acos, std::acos, acosf)
LOCKSTEP_MATH_FUNCTION(sinh, std::sinh, sinhf)
LOCKSTEP_MATH_FUNCTION(cosh, std::cosh, coshf)
LOCKSTEP_MATH_FUNCTION(asinh, std::asinh, asinhf)
LOCKSTEP_MATH_FUNCTION(acosh, std::acosh, acoshf)
LOCKSTEP_MATH_FUNCTION(atanh, std::atanh, atanhf)
LOCKSTEP_MATH_FUNCTION(log2, detail::log2_host, log2f)
LOCKSTEP_MATH_FUNCTION(log10, detail::log10_host, log10f)
LOCKSTEP_MATH_FUNCTION(sqrt, __builtin_sqrtf, sqrtf)
LOCKSTEP_MATH_FUNCTION(floor, __builtin_floorf, floorf)
LOCKSTEP_MATH_FUNCTION(ceil, __builtin_ceilf, ceilf)
LOCKSTEP_MATH_FUNCTION(trunc, __builtin_truncf, truncf)
// To the nearest, halves to even.
LOCKSTEP_MATH_FUNCTION(nearbyint, __builtin_nearbyintf, nearbyintf)
#undef LOCKSTEP_MATH_FUNCTION
LOCKSTEP_MATH float sin(SmallAngle x) { return detail::sin_host(x); }
LOCKSTEP_MATH float cos(SmallAngle x) { return detail::cos_host(x); }
LOCKSTEP_MATH float tan(SmallAngle x) { return detail::tan_host(x); }

/// e^x for results that end in 16 bits: on a GPU one product and one instruction, right to 2^-22 of
/// the result and (2^-23 |x|) more, and 0 below 2^-126.
LOCKSTEP_MATH float short_exp(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
  return result;
#else
  return exp(x);
#endif
}

/// |x|
LOCKSTEP_MATH float abs(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}
LOCKSTEP_MATH double abs(double x) { return ::fabs(x); }

/// x to the power y
LOCKSTEP_MATH float pow(float x, float y) {
#if defined(__CUDA_ARCH__)
  return ::powf(x, y);
#else
  return detail::pow_host(x, y);
#endif
}
LOCKSTEP_MATH double pow(double x, double y) { return ::pow(x, y); }

/// The angle of the point (x, y)
LOCKSTEP_MATH float atan2(float y, float x) { return ::atan2f(y, x); }
LOCKSTEP_MATH double atan2(double y, double x) { return ::atan2(y, x); }

/// What is left of x when y is taken away as often as it fits, with the sign of x; exact.
LOCKSTEP_MATH float fmod(float x, float y) { return ::fmodf(x, y); }
LOCKSTEP_MATH double fmod(double x, double y) { return ::fmod(x, y); }

/// 1 / (1 + e^-x)
template <class T>
LOCKSTEP_MATH T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

/// Sine and cosine of 2 pi u for 0 <= u < 1, the angle of Box-Muller: the same bits on the host and
/// on the device but for the contraction of products and sums.
struct SinCos {
  float sin, cos;
};
LOCKSTEP_MATH SinCos sincos_turns(float u) {
  const auto quadrant = static_cast<std::int32_t>(4.0f * u + 0.5f);
  const float t = (u - 0.25f * static_cast<float>(quadrant)) * 6.28318531f, s = t * t;
  const float sine =
      t + t * s * ((-1.958750363e-04f * s + 8.332747035e-03f) * s - 1.666666418e-01f);
  const float cosine =
      1.0f - 0.5f * s + s * s * ((2.454753849e-05f * s - 1.388830133e-03f) * s + 4.166666418e-02f);
  const bool swap = quadrant & 1;
  const float a = swap ? cosine : sine, b = swap ? sine : cosine;
  return {quadrant & 2 ? -a : a, (quadrant + 1) & 2 ? -b : b};
}

}  // namespace math
}  // namespace lockstep::functional::inline LOCKSTEP_ISA
