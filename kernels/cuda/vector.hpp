#pragma once

#include <bit>
#include <cstdint>

#include <cuda_runtime.h>

#include "lockstep/core/dtype.hpp"

/// @file
/// Wide loads and stores, and conversions by the hardware's own instructions.

/// Advice on the loop that follows.
#if defined(__CUDACC__)
#define LOCKSTEP_UNROLL _Pragma("unroll")
#define LOCKSTEP_NO_UNROLL _Pragma("unroll 1")
#else
#define LOCKSTEP_UNROLL
#define LOCKSTEP_NO_UNROLL
#endif

namespace lockstep::cuda_kernels {

/// N elements that move in one transaction of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T lane[N];
};

/// Elements of the largest of the types that fit 16 bytes.
template <class... T>
inline constexpr int lanes_of = [] {
  std::size_t largest = 1;
  ((largest = sizeof(T) > largest ? sizeof(T) : largest), ...);
  return static_cast<int>(16 / largest);
}();

/// Reads N elements from an address aligned to their size, 16 bytes as one 128-bit load.
template <int N, class T>
__device__ Vector<T, N> load_vector(const T* address) {
  if constexpr (sizeof(Vector<T, N>) == 16)
    return std::bit_cast<Vector<T, N>>(*reinterpret_cast<const uint4*>(address));
  else if constexpr (sizeof(Vector<T, N>) == 8)
    return std::bit_cast<Vector<T, N>>(*reinterpret_cast<const uint2*>(address));
  else
    return *reinterpret_cast<const Vector<T, N>*>(address);
}

/// Writes N elements to an address aligned to their size.
template <int N, class T>
__device__ void store_vector(T* address, const Vector<T, N>& value) {
  if constexpr (sizeof(Vector<T, N>) == 16)
    *reinterpret_cast<uint4*>(address) = std::bit_cast<uint4>(value);
  else if constexpr (sizeof(Vector<T, N>) == 8)
    *reinterpret_cast<uint2*>(address) = std::bit_cast<uint2>(value);
  else
    *reinterpret_cast<Vector<T, N>*>(address) = value;
}

/// Rounds a float as BFloat16(value) does, NaN payloads aside.
__device__ inline BFloat16 round_to(TypeTag<BFloat16>, float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return BFloat16::from_bits(bits);
#else
  return BFloat16(value);
#endif
}

/// Rounds a float as Half(value) does, NaN payloads aside.
__device__ inline Half round_to(TypeTag<Half>, float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return Half::from_bits(bits);
#else
  return Half(value);
#endif
}

__device__ inline float widen(Half value) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return static_cast<float>(value);
#endif
}
__device__ inline float widen(BFloat16 value) { return static_cast<float>(value); }

template <class T>
inline constexpr bool is_16_bit_float = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

/// Converts between any two element types; 16-bit floats go through float.
template <class To, class From>
__device__ To convert(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (is_16_bit_float<From>)
    return convert<To>(widen(value));
  else if constexpr (is_16_bit_float<To>)
    return round_to(TypeTag<To>{}, static_cast<float>(value));
  else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, std::uint8_t>)
    // Through i64: what does not fit wraps, as on the CPU. The instruction for u8 clamps to 0.
    return static_cast<To>(static_cast<std::int64_t>(value));
  else
    return static_cast<To>(value);
}

}  // namespace lockstep::cuda_kernels
