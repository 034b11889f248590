#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Sine, cosine, tangent and arctangent in float on the CPU, for math.hpp. Of angles that are not
/// small (SmallAngle), infinities and NaN the C library's serve, by a call.

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math {

/// An angle that needs no call: |x| is at most `limit`. Loops over such can be vectorised.
struct SmallAngle {
  static constexpr float limit = 0x1p17f;
  float x;
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

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float sin_host(SmallAngle angle) {
  const float x = ::fabsf(angle.x);  // -0 keeps its sign
  const auto [n, parity] = nearest(x * 0.318309886f);
  return with_sign_flipped_by(sin_of_half_turn(less_quarter_turns(x, 2.0f * n)),
                              (parity << 31) ^ std::bit_cast<std::uint32_t>(angle.x));
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float cos_host(SmallAngle angle) {
  // -sin(x - pi / 2)
  const auto [n, parity] = nearest(angle.x * 0.318309886f - 0.5f);
  return with_sign_flipped_by(sin_of_half_turn(less_quarter_turns(angle.x, 2.0f * n + 1.0f)),
                              ~parity << 31);
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float tan_host(SmallAngle angle) {
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
  return ::fabsf(angle) <= SmallAngle::limit;
}
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float sin_host(float x) {
  return is_small(x) ? sin_host(SmallAngle{x}) : ::sinf(x);
}
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float cos_host(float x) {
  return is_small(x) ? cos_host(SmallAngle{x}) : ::cosf(x);
}
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float tan_host(float x) {
  return is_small(x) ? tan_host(SmallAngle{x}) : ::tanf(x);
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float atan_host(float x) {
  const float t = ::fabsf(x);
  // atan t = c + atan u with |u| <= tan(pi/8), and c one of 0, pi/4, pi/2.
  const bool large = t > 2.41421356f, middle = t > 0.414213562f;
  const float numerator = large ? -1.0f : middle ? t - 1.0f : t;
  const float denominator = large ? t : middle ? t + 1.0f : 1.0f;
  const float c = large ? 1.57079633f : middle ? 0.785398163f : 0.0f;
  const float u = numerator / denominator, z = u * u;
  float p = -6.078221949e-02f;
  p = p * z + 1.059381396e-01f;
  p = p * z - 1.424353338e-01f;
  p = p * z + 1.999847152e-01f;
  p = p * z - 3.333331519e-01f;
  return ::copysignf(c + (u + u * z * p), x);
}

}  // namespace detail
}  // namespace math
}  // namespace lockstep::functional::inline LOCKSTEP_ISA
