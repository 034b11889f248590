#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "lockstep/core/dtype.hpp"

/// @file
/// Where a uniform draw ends. [low, high) leaves `high` out, but sums and conversions round up to
/// it: of the f32 numbers in [0, 1) every 500th becomes 1 in bf16.

namespace lockstep::functional {

/// The next number of a 16-bit format towards minus infinity.
template <class T>
T next_below(T value) {
  constexpr std::uint16_t sign = 0x8000;
  if ((value.bits & ~sign) == 0) return T::from_bits(sign | 1);
  return T::from_bits(value.bits & sign ? value.bits + 1 : value.bits - 1);
}
inline float next_below(float value) {
  return std::nextafter(value, -std::numeric_limits<float>::infinity());
}
inline double next_below(double value) {
  return std::nextafter(value, -std::numeric_limits<double>::infinity());
}

/// The largest T (f32 or less) below a bound.
template <class T>
double largest_below(double bound) {
  T value(static_cast<float>(bound));
  while (static_cast<double>(static_cast<float>(value)) >= bound) value = next_below(value);
  return static_cast<double>(static_cast<float>(value));
}

/// The largest number of a floating dtype in [low, high), or `high` where that is `low`.
inline double last_of_uniform(double low, double high, DType dtype) {
  if (low == high) return high;
  if (dtype == DType::f64) return next_below(high);
  if (dtype == DType::bf16) return largest_below<BFloat16>(high);
  return dtype == DType::f16 ? largest_below<Half>(high) : largest_below<float>(high);
}

}  // namespace lockstep::functional
