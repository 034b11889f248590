#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "functional/host_angles.hpp"
#include "functional/host_doubles.hpp"
#include "functional/host_exponentials.hpp"
#include "functional/host_power.hpp"
#include "functional/host_quotients.hpp"
#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Elementary functions. In float on the CPU, and the usual ones in double, they are own,
/// branch-free code that the compiler vectorises inside any loop, right to 2.6 ulp, with the usual
/// values at infinity, NaN and overflow. Else in double, and on the device, the native functions
/// serve.
///
/// Coefficients are minimax fits (Lawson's iteration on Chebyshev nodes) made for these files; the
/// reductions are those of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions".

namespace lockstep::functional::inline LOCKSTEP_ISA {
namespace math {

#define LOCKSTEP_MATH LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE

// One line per function: native on the device, own on the host in float and, of OWN, in double.
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_MATH_FUNCTION(function, own, native)           \
  LOCKSTEP_MATH float function(float x) { return ::native(x); } \
  LOCKSTEP_MATH double function(double x) { return ::function(x); }
#define LOCKSTEP_OWN_MATH_FUNCTION LOCKSTEP_MATH_FUNCTION
#else
#define LOCKSTEP_MATH_FUNCTION(function, own, native)      \
  LOCKSTEP_MATH float function(float x) { return own(x); } \
  LOCKSTEP_MATH double function(double x) { return std::function(x); }
#define LOCKSTEP_OWN_MATH_FUNCTION(function, own, native)  \
  LOCKSTEP_MATH float function(float x) { return own(x); } \
  LOCKSTEP_MATH double function(double x) { return own(x); }
#endif
LOCKSTEP_OWN_MATH_FUNCTION(exp, detail::exp_host, expf)
LOCKSTEP_OWN_MATH_FUNCTION(expm1, detail::expm1_host, expm1f)
LOCKSTEP_OWN_MATH_FUNCTION(log, detail::log_host, logf)
LOCKSTEP_OWN_MATH_FUNCTION(log1p, detail::log1p_host, log1pf)
LOCKSTEP_OWN_MATH_FUNCTION(tanh, detail::tanh_host, tanhf)
LOCKSTEP_OWN_MATH_FUNCTION(sin, detail::sin_host, sinf)
LOCKSTEP_OWN_MATH_FUNCTION(cos, detail::cos_host, cosf)
LOCKSTEP_MATH_FUNCTION(erf, detail::erf_host, erff)
LOCKSTEP_MATH_FUNCTION(tan, detail::tan_host, tanf)
LOCKSTEP_MATH_FUNCTION(atan, detail::atan_host, atanf)
LOCKSTEP_MATH_FUNCTION(asin, detail::asin_host, asinf)
LOCKSTEP_MATH_FUNCTION(acos, detail::acos_host, acosf)
LOCKSTEP_MATH_FUNCTION(sinh, detail::sinh_host, sinhf)
LOCKSTEP_MATH_FUNCTION(cosh, detail::cosh_host, coshf)
LOCKSTEP_MATH_FUNCTION(asinh, detail::asinh_host, asinhf)
LOCKSTEP_MATH_FUNCTION(acosh, detail::acosh_host, acoshf)
LOCKSTEP_MATH_FUNCTION(atanh, detail::atanh_host, atanhf)
LOCKSTEP_MATH_FUNCTION(log2, detail::log2_host, log2f)
LOCKSTEP_MATH_FUNCTION(log10, detail::log10_host, log10f)
LOCKSTEP_MATH_FUNCTION(sqrt, __builtin_sqrtf, sqrtf)
LOCKSTEP_MATH_FUNCTION(floor, __builtin_floorf, floorf)
LOCKSTEP_MATH_FUNCTION(ceil, __builtin_ceilf, ceilf)
LOCKSTEP_MATH_FUNCTION(trunc, __builtin_truncf, truncf)
// To the nearest, halves to even.
LOCKSTEP_MATH_FUNCTION(nearbyint, __builtin_nearbyintf, nearbyintf)
#undef LOCKSTEP_MATH_FUNCTION
#undef LOCKSTEP_OWN_MATH_FUNCTION
template <class T>
LOCKSTEP_MATH T sin(SmallAngle<T> x) {
  return detail::sin_host(x);
}
template <class T>
LOCKSTEP_MATH T cos(SmallAngle<T> x) {
  return detail::cos_host(x);
}
LOCKSTEP_MATH float tan(SmallAngle<float> x) { return detail::tan_host(x); }
LOCKSTEP_MATH double tan(SmallAngle<double> angle) { return tan(angle.x); }

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
LOCKSTEP_MATH float abs(float x) { return detail::magnitude_of(x); }
LOCKSTEP_MATH double abs(double x) { return ::fabs(x); }

// The same of two operands.
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_MATH_FUNCTION_OF_TWO(function, own, native) \
  LOCKSTEP_MATH float function(float x, float y) { return ::native(x, y); }
#else
#define LOCKSTEP_MATH_FUNCTION_OF_TWO(function, own, native) \
  LOCKSTEP_MATH float function(float x, float y) { return own(x, y); }
#endif
/// x to the power y
LOCKSTEP_MATH_FUNCTION_OF_TWO(pow, detail::pow_host, powf)
LOCKSTEP_MATH double pow(double x, double y) { return ::pow(x, y); }
/// The angle of a point: of its height, then its width
LOCKSTEP_MATH_FUNCTION_OF_TWO(atan2, detail::atan2_host, atan2f)
LOCKSTEP_MATH double atan2(double y, double x) { return ::atan2(y, x); }
/// What is left of x when y is taken away as often as it fits, with the sign of x; exact.
LOCKSTEP_MATH_FUNCTION_OF_TWO(fmod, detail::fmod_host, fmodf)
#undef LOCKSTEP_MATH_FUNCTION_OF_TWO
LOCKSTEP_MATH float fmod(CloseOperand x, CloseOperand y) { return detail::fmod_host(x, y); }
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
