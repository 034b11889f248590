#pragma once

#include <cmath>

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// What division leaves in float on the CPU, for math.hpp; exact. The C library's, which takes time
/// by the quotient's digits, serves by a call where that is large or none.

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math {

/// An operand of a quotient that needs no call: its magnitude is below 2^28. Loops over such can be
/// vectorised.
struct CloseOperand {
  static constexpr float limit = 0x1p28f;
  float x;
};

namespace detail {

/// Whether x and y can be CloseOperands; not where either is infinite or NaN.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE bool are_close(float x, float y) {
  const float divisor = ::fabsf(y);
  return (::fabsf(x) < CloseOperand::limit * divisor) & (divisor < __builtin_huge_valf());
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float fmod_host(CloseOperand a, CloseOperand b) {
  // In double the product of a whole quotient below 2^28 and a float is exact, and so is what it
  // leaves of another. The nearest quotient may be one too many.
  constexpr double to_integer = 0x1.8p52;  // adding it rounds
  const double x = static_cast<double>(::fabsf(a.x)), y = static_cast<double>(::fabsf(b.x));
  const double quotient = (x / y + to_integer) - to_integer;
  const double rest = x - quotient * y;
  return ::copysignf(static_cast<float>(rest < 0.0 ? rest + y : rest), a.x);
}

LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float fmod_host(float x, float y) {
  return are_close(x, y) ? fmod_host(CloseOperand{x}, CloseOperand{y}) : ::fmodf(x, y);
}

}  // namespace detail

/// The number that an operand is.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T number_of(T operand) {
  return operand;
}
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float number_of(CloseOperand operand) { return operand.x; }

}  // namespace math
}  // namespace lockstep::functional::inline LOCKSTEP_ISA
