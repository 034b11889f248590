#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "simgpu/language.hpp"

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
inline float __powf(float base, float exponent) { return std::pow(base, exponent); }
inline float __sinf(float value) { return std::sin(value); }
inline float __cosf(float value) { return std::cos(value); }
inline float __tanf(float value) { return std::tan(value); }
inline float __log2f(float value) { return std::log2(value); }
inline float __log10f(float value) { return std::log10(value); }
inline float __exp10f(float value) { return std::pow(10.0f, value); }
inline int __float2int_rn(float value) { return static_cast<int>(std::nearbyint(value)); }
inline int __float2int_rz(float value) { return static_cast<int>(value); }
inline int __float2int_rd(float value) { return static_cast<int>(std::floor(value)); }
inline int __float2int_ru(float value) { return static_cast<int>(std::ceil(value)); }
inline float __int2float_rn(int value) { return static_cast<float>(value); }
inline float __uint2float_rn(unsigned value) { return static_cast<float>(value); }
inline double __longlong_as_double(long long value) { return ::simgpu::bit_cast<double>(value); }
inline long long __double_as_longlong(double value) { return ::simgpu::bit_cast<long long>(value); }

// Of two numbers of any types, as the overloads of the original.
#define SIMGPU_EXTREME(name, first)                                                       \
  template <class A, class B,                                                             \
            class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>> \
  constexpr std::common_type_t<A, B> name(A a, B b) {                                     \
    using Common = std::common_type_t<A, B>;                                              \
    return first ? Common(a) : Common(b);                                                 \
  }
SIMGPU_EXTREME(min, !(Common(b) < Common(a)))
SIMGPU_EXTREME(max, !(Common(a) < Common(b)))
#undef SIMGPU_EXTREME
