#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "simgpu/language.hpp"
#include "simgpu/rounding.hpp"

/// @file
/// What __half and __nv_bfloat16 have in common: they are made of any number, become float by
/// themselves, and compute in f32 with one rounding at the end.

namespace simgpu {

inline std::uint16_t bfloat16_bits(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float float_of_bfloat16(std::uint16_t bits) {
  return bit_cast<float>(std::uint32_t{bits} << 16);
}
/// What of a number of any type is rounded to 16 bits, once.
template <class T>
float to_float(T value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return rounded_to_odd(value);
}
template <class T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else if constexpr (std::is_integral_v<T>)
    return to_integer<T>(value);
  else
    return static_cast<T>(value);
}
inline std::uint16_t half_bits(float value) {
  return bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}
inline float float_of_half(std::uint16_t bits) {
  return static_cast<float>(bit_cast<_Float16>(bits));
}

}  // namespace simgpu

/// A type of 16 bits, its pairs, and its operators. `raw` is what holds its bits.
#define SIMGPU_FLOAT16(name, pair, raw, to_bits, from_bits)                                   \
  struct raw {                                                                                \
    unsigned short x;                                                                         \
  };                                                                                          \
  struct name {                                                                               \
    name() = default;                                                                         \
    name(raw bits) : bits_(bits.x) {}                                                         \
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>                     \
    name(T value) : bits_(::simgpu::to_bits(::simgpu::to_float(value))) {}                    \
    operator float() const { return ::simgpu::from_bits(bits_); }                             \
    operator raw() const { return {bits_}; }                                                  \
    template <class T,                                                                        \
              class = std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, float>>> \
    explicit operator T() const {                                                             \
      return ::simgpu::from_float<T>(static_cast<float>(*this));                              \
    }                                                                                         \
    friend name operator+(name a, name b) { return float(a) + float(b); }                     \
    friend name operator-(name a, name b) { return float(a) - float(b); }                     \
    friend name operator*(name a, name b) { return float(a) * float(b); }                     \
    friend name operator/(name a, name b) { return float(a) / float(b); }                     \
    friend name operator+(name a) { return a; }                                               \
    friend name operator-(name a) { return -float(a); }                                       \
    friend bool operator==(name a, name b) { return float(a) == float(b); }                   \
    friend bool operator!=(name a, name b) { return float(a) != float(b); }                   \
    friend bool operator<(name a, name b) { return float(a) < float(b); }                     \
    friend bool operator>(name a, name b) { return float(a) > float(b); }                     \
    friend bool operator<=(name a, name b) { return float(a) <= float(b); }                   \
    friend bool operator>=(name a, name b) { return float(a) >= float(b); }                   \
    name& operator+=(name other) { return *this = *this + other; }                            \
    name& operator-=(name other) { return *this = *this - other; }                            \
    name& operator*=(name other) { return *this = *this * other; }                            \
    name& operator/=(name other) { return *this = *this / other; }                            \
                                                                                              \
   private:                                                                                   \
    unsigned short bits_;                                                                     \
  };                                                                                          \
  struct alignas(4) pair {                                                                    \
    name x, y;                                                                                \
    pair() = default;                                                                         \
    pair(name first, name second) : x(first), y(second) {}                                    \
    friend pair operator+(pair a, pair b) { return {a.x + b.x, a.y + b.y}; }                  \
    friend pair operator-(pair a, pair b) { return {a.x - b.x, a.y - b.y}; }                  \
    friend pair operator*(pair a, pair b) { return {a.x * b.x, a.y * b.y}; }                  \
    friend pair operator/(pair a, pair b) { return {a.x / b.x, a.y / b.y}; }                  \
  };                                                                                          \
  inline name __hadd(name a, name b) { return a + b; }                                        \
  inline name __hsub(name a, name b) { return a - b; }                                        \
  inline name __hmul(name a, name b) { return a * b; }                                        \
  inline name __hdiv(name a, name b) { return a / b; }                                        \
  inline name __hneg(name a) { return -a; }                                                   \
  inline name __habs(name a) { return std::fabs(float(a)); }                                  \
  inline name __hfma(name a, name b, name c) { return ::simgpu::fma_to_odd(a, b, c); }        \
  inline name __hmax(name a, name b) { return std::fmax(float(a), float(b)); }                \
  inline name __hmin(name a, name b) { return std::fmin(float(a), float(b)); }                \
  inline bool __heq(name a, name b) { return a == b; }                                        \
  inline bool __hne(name a, name b) { return a < b || a > b; }                                \
  inline bool __hlt(name a, name b) { return a < b; }                                         \
  inline bool __hle(name a, name b) { return a <= b; }                                        \
  inline bool __hgt(name a, name b) { return a > b; }                                         \
  inline bool __hge(name a, name b) { return a >= b; }                                        \
  inline bool __hisnan(name a) { return std::isnan(float(a)); }                               \
  inline name hexp(name a) { return std::exp(float(a)); }                                     \
  inline name hlog(name a) { return std::log(float(a)); }                                     \
  inline name hsqrt(name a) { return std::sqrt(float(a)); }                                   \
  inline name hrsqrt(name a) { return 1.0f / std::sqrt(float(a)); }                           \
  inline pair __hadd2(pair a, pair b) { return a + b; }                                       \
  inline pair __hsub2(pair a, pair b) { return a - b; }                                       \
  inline pair __hmul2(pair a, pair b) { return a * b; }                                       \
  inline pair __hfma2(pair a, pair b, pair c) {                                               \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                    \
  }                                                                                           \
  inline pair __hmax2(pair a, pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }        \
  inline pair __hmin2(pair a, pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }        \
  inline float __low2float(pair a) { return a.x; }                                            \
  inline float __high2float(pair a) { return a.y; }
