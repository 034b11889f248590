#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "simgpu/language.hpp"

/// @file
/// Conversions as a GPU makes them, where C++ leaves the result open or rounds twice.

namespace simgpu {

/// A number without a fraction as an integer: what does not fit becomes the nearest that there is,
/// and NaN 0 (of 64 bits the least).
template <class T, class F>
T to_integer(F value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value))
    return sizeof(T) < 8 ? T(0) : std::is_signed_v<T> ? Limits::min() : Limits::max();
  if (value <= static_cast<F>(Limits::min())) return Limits::min();
  if (value >= static_cast<F>(Limits::max())) return Limits::max();
  return static_cast<T>(value);
}

/// As f32, and where that is not exact, the neighbour whose last bit is 1: what is rounded from it
/// to fewer bits is rounded once (Boldo and Melquiond 2008).
inline float rounded_to_odd(long double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || nearest == value) return nearest;
  const float below = std::fabs(static_cast<long double>(nearest)) > std::fabs(value)
                          ? std::nextafter(nearest, 0.0f)
                          : nearest;
  return bit_cast<float>(bit_cast<std::uint32_t>(below) | 1u);
}

/// a * b + c of numbers of 16 bits, likewise.
inline float fma_to_odd(float a, float b, float c) {
  const double product = double{a} * b;  // exact
  const double sum = product + c;
  const double part = sum - product;
  const double rest = (product - (sum - part)) + (c - part);  // exact (Knuth)
  if (rest == 0 || !std::isfinite(sum) || (bit_cast<std::uint64_t>(sum) & 1) != 0)
    return rounded_to_odd(sum);
  const double infinity = std::numeric_limits<double>::infinity();
  return rounded_to_odd(std::nextafter(sum, rest > 0 ? infinity : -infinity));
}

}  // namespace simgpu
