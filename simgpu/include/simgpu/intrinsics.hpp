#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "simgpu/language.hpp"
#include "simgpu/rounding.hpp"

/// @file
/// Functions that are single instructions on a GPU.

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) {
  return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
/// Position of the lowest set bit, counted from 1; 0 if there is none.
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline unsigned __brev(unsigned value) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (value >> bit & 1u) << (31 - bit);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long value) {
  return std::uint64_t{__brev(static_cast<unsigned>(value))} << 32 |
         __brev(static_cast<unsigned>(value >> 32));
}
inline int __mulhi(int a, int b) { return static_cast<int>(std::int64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(Wide{a} * b >> 64);
}
/// The high word of (high:low) << shift, and the low one of it >> shift; shifts modulo 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
/// Byte i of the result is the one that hexadecimal digit i of the selector names.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (8 * (selector >> 4 * i & 7)) & 0xFF) << 8 * i;
  return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}

// Loads and stores with advice to the caches.
#define SIMGPU_LOAD(name)    \
  template <class T>         \
  T name(const T* address) { \
    return *address;         \
  }
#define SIMGPU_STORE(name)                                    \
  template <class T>                                          \
  void name(T* address, ::simgpu::type_identity_t<T> value) { \
    *address = value;                                         \
  }
SIMGPU_LOAD(__ldg)
SIMGPU_LOAD(__ldca)
SIMGPU_LOAD(__ldcg)
SIMGPU_LOAD(__ldcs)
SIMGPU_LOAD(__ldcv)
SIMGPU_LOAD(__ldlu)
SIMGPU_STORE(__stcg)
SIMGPU_STORE(__stcs)
SIMGPU_STORE(__stwb)
SIMGPU_STORE(__stwt)
#undef SIMGPU_LOAD
#undef SIMGPU_STORE

inline unsigned __float_as_uint(float value) { return ::simgpu::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return ::simgpu::bit_cast<int>(value); }
inline float __uint_as_float(unsigned value) { return ::simgpu::bit_cast<float>(value); }
inline float __int_as_float(int value) { return ::simgpu::bit_cast<float>(value); }

inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline double rsqrt(double value) { return 1.0 / std::sqrt(value); }
inline float __expf(float value) { return std::exp(value); }
inline float __logf(float value) { return std::log(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __saturatef(float value) { return value > 1.0f ? 1.0f : value > 0.0f ? value : 0.0f; }
inline float __fsqrt_rn(float value) { return std::sqrt(value); }
inline float __frcp_rn(float value) { return 1.0f / value; }
inline float __frsqrt_rn(float value) { return 1.0f / std::sqrt(value); }
// As documented, of a negative base NaN.
inline float __powf(float base, float exponent) { return std::exp2(exponent * std::log2(base)); }
inline float __sinf(float value) { return std::sin(value); }
inline float __cosf(float value) { return std::cos(value); }
inline float __tanf(float value) { return std::tan(value); }
inline float __log2f(float value) { return std::log2(value); }
inline float __log10f(float value) { return std::log10(value); }
inline float __exp10f(float value) { return std::pow(10.0f, value); }
inline int __float2int_rn(float value) { return ::simgpu::to_integer<int>(std::nearbyint(value)); }
inline int __float2int_rz(float value) { return ::simgpu::to_integer<int>(value); }
inline int __float2int_rd(float value) { return ::simgpu::to_integer<int>(std::floor(value)); }
inline int __float2int_ru(float value) { return ::simgpu::to_integer<int>(std::ceil(value)); }
inline unsigned __float2uint_rn(float value) {
  return ::simgpu::to_integer<unsigned>(std::nearbyint(value));
}
inline unsigned __float2uint_rz(float value) { return ::simgpu::to_integer<unsigned>(value); }
inline int __double2int_rn(double value) {
  return ::simgpu::to_integer<int>(std::nearbyint(value));
}
inline int __double2int_rz(double value) { return ::simgpu::to_integer<int>(value); }
inline long long __float2ll_rn(float value) {
  return ::simgpu::to_integer<long long>(std::nearbyint(value));
}
inline long long __float2ll_rz(float value) { return ::simgpu::to_integer<long long>(value); }
inline float __ll2float_rn(long long value) { return static_cast<float>(value); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __int2float_rn(int value) { return static_cast<float>(value); }
inline float __uint2float_rn(unsigned value) { return static_cast<float>(value); }
inline double __longlong_as_double(long long value) { return ::simgpu::bit_cast<double>(value); }
inline long long __double_as_longlong(double value) { return ::simgpu::bit_cast<long long>(value); }

// Of two numbers of any types, as the overloads of the original: of NaN and a number the number.
#define SIMGPU_EXTREME(name, of_floats, first)                                            \
  template <class A, class B,                                                             \
            class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>> \
  constexpr std::common_type_t<A, B> name(A a, B b) {                                     \
    using Common = std::common_type_t<A, B>;                                              \
    if constexpr (std::is_floating_point_v<Common>)                                       \
      return of_floats(Common(a), Common(b));                                             \
    else                                                                                  \
      return first ? Common(a) : Common(b);                                               \
  }
SIMGPU_EXTREME(min, std::fmin, !(Common(b) < Common(a)))
SIMGPU_EXTREME(max, std::fmax, !(Common(a) < Common(b)))
#undef SIMGPU_EXTREME
