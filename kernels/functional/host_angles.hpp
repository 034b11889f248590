#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Trigonometric functions and their inverses in float on the CPU, for math.hpp. Of angles that are
/// not small (SmallAngle), infinities and NaN the C library's serve, by a call.

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math {

/// An angle that needs no call: |x| is at most `limit`. Loops over such can be vectorised.
template <class T>
struct SmallAngle {
  static constexpr T limit = 0x1p17f;
  T x;
};

namespace detail {

/// The sine of t for |t| up to about pi / 2.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float sin_of_half_turn(float t) {
  const float s = t * t;
  float p = 2.604582363e-06f;
  p = p * s - 1.980908864e-04f;
  p = p * s + 8.333059657e-03f;
  p = p * s - 1.666665931e-01f;
  return t + t * (s * p);
}

/// A whole number n near x, as a float and in bit 0 of an integer.
struct Nearest {
  float n;
  std::uint32_t parity;
};
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE Nearest nearest(float x) {
  const float shifted = x + 12582912.0f;  // 1.5 * 2^23 more: rounds to integer
  return {shifted - 12582912.0f, std::bit_cast<std::uint32_t>(shifted)};
}

/// x - n pi / 2. In double, with pi / 2 in two parts, the first short, so that n times it is exact:
/// next to a multiple nothing else is left.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float less_quarter_turns(float x, float n) {
  const double turns = static_cast<double>(n);
  return static_cast<float>((static_cast<double>(x) - turns * 0x1.921fb544p0) -
                            turns * 0x1.0b4611a626331p-34);
}

/// `value`, or -value if bit 31 of `sign` is set.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float with_sign_flipped_by(float value, std::uint32_t sign) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (sign & 0x80000000u));
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float sin_host(SmallAngle<float> angle) {
  const float x = ::fabsf(angle.x);  // -0 keeps its sign
  const auto [n, parity] = nearest(x * 0.318309886f);
  return with_sign_flipped_by(sin_of_half_turn(less_quarter_turns(x, 2.0f * n)),
                              (parity << 31) ^ std::bit_cast<std::uint32_t>(angle.x));
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float cos_host(SmallAngle<float> angle) {
  // -sin(x - pi / 2)
  const auto [n, parity] = nearest(angle.x * 0.318309886f - 0.5f);
  return with_sign_flipped_by(sin_of_half_turn(less_quarter_turns(angle.x, 2.0f * n + 1.0f)),
                              ~parity << 31);
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float tan_host(SmallAngle<float> angle) {
  const float x = ::fabsf(angle.x);
  const auto [n, parity] = nearest(x * 0.636619772f);
  const float t = less_quarter_turns(x, n);
  const float z = t * t;
  float p = 9.385401855e-03f;
  p = p * z + 3.119922327e-03f;
  p = p * z + 2.443013545e-02f;
  p = p * z + 5.341128070e-02f;
  p = p * z + 1.333879941e-01f;
  p = p * z + 3.333315685e-01f;
  const float tangent = t + t * (z * p);
  // In every second quarter it is -1 / tan t.
  const bool odd = parity & 1;
  return with_sign_flipped_by((odd ? -1.0f : tangent) / (odd ? tangent : 1.0f),
                              std::bit_cast<std::uint32_t>(angle.x));
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE bool is_small(float angle) {
  return ::fabsf(angle) <= SmallAngle<float>::limit;
}
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float sin_host(float x) {
  return is_small(x) ? sin_host(SmallAngle<float>{x}) : ::sinf(x);
}
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float cos_host(float x) {
  return is_small(x) ? cos_host(SmallAngle<float>{x}) : ::cosf(x);
}
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float tan_host(float x) {
  return is_small(x) ? tan_host(SmallAngle<float>{x}) : ::tanf(x);
}

/// The angle whose tangent is u, for |u| up to tan(pi/8).
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float atan_of_small(float u) {
  const float z = u * u;
  float p = -6.078221949e-02f;
  p = p * z + 1.059381396e-01f;
  p = p * z - 1.424353338e-01f;
  p = p * z + 1.999847152e-01f;
  p = p * z - 3.333331519e-01f;
  return u + u * z * p;
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float atan_host(float x) {
  const float t = ::fabsf(x);
  // atan t = c + atan u with |u| <= tan(pi/8), and c one of 0, pi/4, pi/2.
  const bool large = t > 2.41421356f, middle = t > 0.414213562f;
  const float numerator = large ? -1.0f : middle ? t - 1.0f : t;
  const float denominator = large ? t : middle ? t + 1.0f : 1.0f;
  const float c = large ? 1.57079633f : middle ? 0.785398163f : 0.0f;
  return ::copysignf(c + atan_of_small(numerator / denominator), x);
}

// What floats leave of pi / 2 and pi: to be added last.
inline constexpr float half_pi = 1.57079637f, half_pi_rest = -4.37113883e-08f;
inline constexpr float pi = 3.14159274f, pi_rest = -8.74227766e-08f;

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float atan2_host(float y, float x) {
  const float height = ::fabsf(y), width = ::fabsf(x);
  const bool is_steep = height > width, is_left = std::bit_cast<std::int32_t>(x) < 0;
  constexpr float infinity = __builtin_huge_valf();
  float less = is_steep ? width : height, more = is_steep ? height : width;
  // Two infinities count alike; the sum of two that are large must not be infinite.
  const bool are_infinite = (less == infinity) & (more == infinity);
  const float scale = more > 0x1p125f ? 0.25f : 1.0f;
  less = are_infinite ? 1.0f : less * scale;
  more = are_infinite ? 1.0f : more * scale;
  // less / more, as in atan_host: there is one division.
  const bool middle = less > 0.414213562f * more;
  const float numerator = middle ? less - more : less;
  const float denominator = middle ? less + more : more;
  const float u = numerator / (denominator == 0.0f ? 1.0f : denominator);
  const float angle = (middle ? 0.785398163f : 0.0f) + atan_of_small(u);
  const float from = is_steep ? half_pi : is_left ? pi : 0.0f;
  const float rest = is_steep ? half_pi_rest : is_left ? pi_rest : 0.0f;
  return ::copysignf(from + ((is_steep != is_left ? -angle : angle) + rest), y);
}

/// The sine's inverse at s for s up to 1/2, with z = s^2.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float asin_of_small(float s, float z) {
  float p = 3.751650818e-02f;
  p = p * z + 1.443857212e-02f;
  p = p * z + 3.180772337e-02f;
  p = p * z + 4.451695527e-02f;
  p = p * z + 7.500504179e-02f;
  p = p * z + 1.666665999e-01f;
  return s + s * (z * p);
}

/// The sine's inverse at t up to 1/2; above, half of the cosine's, by sin^2(a/2) = (1 - cos a) / 2.
/// The callers choose numbers, not ways: of branches the compiler makes no vectors.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float asin_or_half_acos(float t, bool is_large) {
  const float z = is_large ? 0.5f * (1.0f - t) : t * t, root = __builtin_sqrtf(z);
  return asin_of_small(is_large ? root : t, z);
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float asin_host(float x) {
  const float t = ::fabsf(x);
  const bool is_large = t > 0.5f;
  const float from = is_large ? half_pi : 0.0f, rest = is_large ? half_pi_rest : 0.0f;
  const float factor = is_large ? -2.0f : 1.0f;
  return ::copysignf(from + (factor * asin_or_half_acos(t, is_large) + rest), x);
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float acos_host(float x) {
  const float t = ::fabsf(x);
  const bool is_large = t > 0.5f, is_negative = x < 0.0f;
  const float from = is_large ? (is_negative ? pi : 0.0f) : half_pi;
  const float rest = is_large ? (is_negative ? pi_rest : 0.0f) : half_pi_rest;
  const float twice = is_large ? -2.0f : 1.0f;
  const float factor = is_negative ? twice : -twice;
  return from + (factor * asin_or_half_acos(t, is_large) + rest);
}

}  // namespace detail
}  // namespace math
}  // namespace lockstep::functional::inline LOCKSTEP_ISA
