#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "functional/host_angles.hpp"
#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Exponentials, logarithms, the hyperbolic tangent and angles in double on the CPU, for math.hpp:
/// as their like in float, with longer polynomials.

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math::detail {

#define LOCKSTEP_MATH LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE

inline constexpr double infinity_f64 = __builtin_huge_val();
inline constexpr double ln2_high_f64 = 0x1.62e42feep-1;  // short, so that n times it is exact
inline constexpr double ln2_low_f64 = 0x1.a39ef35793c76p-33;
inline constexpr double round_magic_f64 = 0x1.8p52;  // 1.5 * 2^52: adding it rounds to integer

/// 2^n for -1022 <= n <= 1023.
LOCKSTEP_MATH double power_of_two(std::int64_t n) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

LOCKSTEP_MATH double bounded(double x, double low, double high) {
  const double raised = x < low ? low : x;
  return raised > high ? high : raised;
}

/// x = n ln 2 + r with |r| <= ln(2) / 2, and e^r - 1.
struct ExpPartsF64 {
  std::int64_t n;
  double expm1_r;
};

LOCKSTEP_MATH ExpPartsF64 exp_parts(double x) {
  const double shifted = x * 0x1.71547652b82fep+0 + round_magic_f64;
  const double n = shifted - round_magic_f64;
  const double r = (x - n * ln2_high_f64) - n * ln2_low_f64;
  double p = 2.09237070947149101e-09;
  p = p * r + 2.51090204051665039e-08;
  p = p * r + 2.75572457459897483e-07;
  p = p * r + 2.75572442819449679e-06;
  p = p * r + 2.48015873559192237e-05;
  p = p * r + 1.98412698860220152e-04;
  p = p * r + 1.38888888888702390e-03;
  p = p * r + 8.33333333332168975e-03;
  p = p * r + 4.16666666666666921e-02;
  p = p * r + 1.66666666666666768e-01;
  p = p * r + 0.5;
  return {std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(round_magic_f64),
          r + r * r * p};
}

LOCKSTEP_MATH double exp_host(double x) {
  const ExpPartsF64 parts = exp_parts(bounded(x, -746.0, 710.0));
  // Two factors, as for floats; n / 2 by a shift of what is not negative, which all processors
  // have.
  const auto half =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(parts.n + 2048) >> 1) - 1024;
  return (1.0 + parts.expm1_r) * power_of_two(half) * power_of_two(parts.n - half);
}

LOCKSTEP_MATH double expm1_host(double x) {
  const ExpPartsF64 parts = exp_parts(bounded(x, -40.0, 710.0));
  const double scale = power_of_two(parts.n - 1);
  const double result = 2.0 * (scale * parts.expm1_r + (scale - 0.5));
  return ::copysign(parts.n == 0 ? parts.expm1_r : result, x);  // of -0 as well
}

LOCKSTEP_MATH double log_host(double x) {
  // x = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), about.
  const bool subnormal = x < 0x1p-1022;
  const auto word = std::bit_cast<std::uint64_t>(subnormal ? x * 0x1p52 : x);
  constexpr std::int32_t sqrt_half = 0x3FE6A09E;  // its upper half
  const std::int32_t exponent = (static_cast<std::int32_t>(word >> 32) - sqrt_half) >> 20;
  const double f = std::bit_cast<double>(word - (static_cast<std::uint64_t>(exponent) << 52)) - 1.0;
  const double n = static_cast<double>(subnormal ? exponent - 52 : exponent);
  // log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + s^2 p(s^2))
  const double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
  double p = 1.47922542313283251e-01;
  p = p * z + 1.53145008990162174e-01;
  p = p * z + 1.81835429328997517e-01;
  p = p * z + 2.22221990755430948e-01;
  p = p * z + 2.85714287363317720e-01;
  p = p * z + 3.99999999994493372e-01;
  p = p * z + 6.66666666666672736e-01;
  const double tail = s * (half_square + z * p) + n * ln2_low_f64;
  const double result = n * ln2_high_f64 - ((half_square - tail) - f);
  const double special =
      x == 0.0 ? -infinity_f64 : std::bit_cast<double>(std::uint64_t{0x7FF8000000000000});
  return x > 0.0 ? (x < infinity_f64 ? result : x) : special;
}

LOCKSTEP_MATH double log1p_host(double x) {
  const double u = 1.0 + x;
  const double lost = x - (u - 1.0);
  const double result = ::copysign(log_host(u) + lost / u, x);
  return u > 0.0 && u < infinity_f64 ? result : log_host(u);
}

LOCKSTEP_MATH double tanh_host(double x) {
  const double magnitude = ::fabs(x);
  const double e = expm1_host(2.0 * (magnitude > 20.0 ? 20.0 : magnitude));
  return ::copysign(e / (e + 2.0), x);
}

/// The sine of t for |t| up to about pi / 2.
LOCKSTEP_MATH double sin_of_half_turn(double t) {
  const double s = t * t;
  double p = 2.72156612773169956e-15;
  p = p * s - 7.64303256659737582e-13;
  p = p * s + 1.60589414756986527e-10;
  p = p * s - 2.50521069130103740e-08;
  p = p * s + 2.75573192116515724e-06;
  p = p * s - 1.98412698412128637e-04;
  p = p * s + 8.33333333333320658e-03;
  p = p * s - 1.66666666666666657e-01;
  return t + t * (s * p);
}

/// x - n pi / 2, with pi / 2 in three parts: n times the first two, which are short, is exact, and
/// so are the differences where next to nothing is left.
LOCKSTEP_MATH double less_quarter_turns(double x, double n) {
  return ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
}

/// `value`, or -value if bit 63 of `sign` is set.
LOCKSTEP_MATH double with_sign_flipped_by(double value, std::uint64_t sign) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ (sign & (1ull << 63)));
}

LOCKSTEP_MATH double sin_host(SmallAngle<double> angle) {
  const double x = ::fabs(angle.x);
  const double shifted = x * 0x1.45f306dc9c883p-2 + round_magic_f64, n = shifted - round_magic_f64;
  return with_sign_flipped_by(
      sin_of_half_turn(less_quarter_turns(x, 2.0 * n)),
      (std::bit_cast<std::uint64_t>(shifted) << 63) ^ std::bit_cast<std::uint64_t>(angle.x));
}

LOCKSTEP_MATH double cos_host(SmallAngle<double> angle) {
  const double shifted = (angle.x * 0x1.45f306dc9c883p-2 - 0.5) + round_magic_f64;
  const double n = shifted - round_magic_f64;
  return with_sign_flipped_by(sin_of_half_turn(less_quarter_turns(angle.x, 2.0 * n + 1.0)),
                              ~std::bit_cast<std::uint64_t>(shifted) << 63);
}

LOCKSTEP_MATH bool is_small(double angle) { return ::fabs(angle) <= SmallAngle<double>::limit; }
LOCKSTEP_MATH double sin_host(double x) {
  return is_small(x) ? sin_host(SmallAngle<double>{x}) : ::sin(x);
}
LOCKSTEP_MATH double cos_host(double x) {
  return is_small(x) ? cos_host(SmallAngle<double>{x}) : ::cos(x);
}

#undef LOCKSTEP_MATH

}  // namespace math::detail
}  // namespace lockstep::functional::inline LOCKSTEP_ISA
