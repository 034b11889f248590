#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "functional/namespace.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/macros.hpp"

#if defined(__F16C__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

/// @file
/// Row algorithms are written over a *group* of threads that share a row: one thread on the CPU, a
/// warp or a block on the GPU. A group offers
///   static constexpr int width      neighbouring elements that a thread handles at once
///   rank(), size()                  the thread's place, and how many threads there are
///   reduce(x, op)                   op over the threads' x, the result known to all of them
///   sync()                          what the threads read and wrote before it comes before what
///                                   any of them does after it
/// On the GPU a width above 1 makes accesses of width * sizeof(element) bytes, and needs rows that
/// begin at multiples of that.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// A few neighbouring elements in the accumulation type.
template <class T, int count>
struct Pack {
  T lane[count];
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T& operator[](int i) { return lane[i]; }
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE const T& operator[](int i) const { return lane[i]; }
};

/// A number of lanes as a type, so that a generic lambda receives it as a constant.
template <int count>
using Width = std::integral_constant<int, count>;

/// Elements as they lie in memory, aligned so that the GPU moves them in one access.
template <class T, int count>
struct alignas(sizeof(T) * count) AlignedVector {
  T lane[count];
};

#if defined(__CUDACC__)
using SixteenBytes = uint4;
#else
using SixteenBytes = std::uint32_t __attribute__((vector_size(16), may_alias));
#endif

/// Whether elements are moved in one access of at most 16 bytes, which must be aligned: by groups
/// of threads. A thread alone takes more at a time, which the compiler makes vectors of.
template <class T, int count>
inline constexpr bool moves_as_vector = (LOCKSTEP_ALIGNED_PACKS) && count > 1 &&
                                        sizeof(T) * count <= 16;

/// One access of the vector's size; the compiler splits structures of 16-bit elements otherwise.
template <int count, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE AlignedVector<T, count> load_vector(const T* from) {
  if constexpr (sizeof(AlignedVector<T, count>) == 16)
    return std::bit_cast<AlignedVector<T, count>>(*reinterpret_cast<const SixteenBytes*>(from));
  else
    return *reinterpret_cast<const AlignedVector<T, count>*>(from);
}
template <int count, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void store_vector(T* to, const AlignedVector<T, count>& vector) {
  if constexpr (sizeof(vector) == 16)
    *reinterpret_cast<SixteenBytes*>(to) = std::bit_cast<SixteenBytes>(vector);
  else
    *reinterpret_cast<AlignedVector<T, count>*>(to) = vector;
}

#if defined(__CUDA_ARCH__)
/// Neighbouring 16-bit elements, two a word: instructions of the hardware convert both.
template <int count>
struct PairedElements {
  std::uint32_t word[count / 2];
};
template <class T, int count>
inline constexpr bool moves_as_pairs =
    (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)&&count % 2 == 0 && count <= 8;

template <int count, class T>
__device__ __forceinline__ Pack<float, count> widen_pairs(const PairedElements<count>& pairs) {
  Pack<float, count> pack;
  for (int k = 0; k < count / 2; ++k) {
    const std::uint32_t word = pairs.word[k];
    if constexpr (std::is_same_v<T, BFloat16>) {
      pack[2 * k] = std::bit_cast<float>(word << 16);
      pack[2 * k + 1] = std::bit_cast<float>(word & 0xFFFF0000u);
    } else {
      asm("{ .reg .f16 low, high; mov.b32 {low, high}, %2;"
          " cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
          : "=f"(pack[2 * k]), "=f"(pack[2 * k + 1])
          : "r"(word));
    }
  }
  return pack;
}

/// As BFloat16(value) and Half(value) round, NaN payloads aside.
template <class T, int count>
__device__ __forceinline__ PairedElements<count> narrow_pairs(const Pack<float, count>& pack) {
  PairedElements<count> pairs;
  for (int k = 0; k < count / 2; ++k) {
    if constexpr (std::is_same_v<T, BFloat16>)
      asm("cvt.rn.bf16x2.f32 %0, %2, %1;"
          : "=r"(pairs.word[k])
          : "f"(pack[2 * k]), "f"(pack[2 * k + 1]));
    else
      asm("cvt.rn.f16x2.f32 %0, %2, %1;"
          : "=r"(pairs.word[k])
          : "f"(pack[2 * k]), "f"(pack[2 * k + 1]));
  }
  return pairs;
}
#endif

#if defined(__F16C__) && !defined(__CUDACC__)
inline constexpr bool has_half_instructions = !(LOCKSTEP_ALIGNED_PACKS);
inline void convert_eight(float* to, const Half* from) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
inline void convert_eight(Half* to, const float* from) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}
#else
inline constexpr bool has_half_instructions = false;
#endif
/// Whether a CPU converts elements by eights, by instructions that GCC makes no vectors of.
template <class A, int count, class T>
inline constexpr bool converts_eights =
    has_half_instructions&& count % 8 == 0 && std::is_same_v<T, Half>&& std::is_same_v<A, float>;

/// Reads `count` elements as accumulation type A.
template <class A, int count, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE Pack<A, count> load(const T* from) {
#if defined(__CUDA_ARCH__)
  if constexpr (moves_as_pairs<T, count>)
    return widen_pairs<count, T>(std::bit_cast<PairedElements<count>>(load_vector<count>(from)));
  else
#endif
  {
    Pack<A, count> pack;
    if constexpr (converts_eights<A, count, T>) {
      for (int j = 0; j < count; j += 8) convert_eight(pack.lane + j, from + j);
    } else if constexpr (moves_as_vector<T, count>) {
      const AlignedVector<T, count> vector = load_vector<count>(from);
      for (int j = 0; j < count; ++j) pack[j] = static_cast<A>(vector.lane[j]);
    } else {
      for (int j = 0; j < count; ++j) pack[j] = static_cast<A>(from[j]);
    }
    return pack;
  }
}

/// Writes a pack as elements of T.
template <class A, int count, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void store(T* to, const Pack<A, count>& pack) {
#if defined(__CUDA_ARCH__)
  if constexpr (moves_as_pairs<T, count>)
    return store_vector<count>(
        to, std::bit_cast<AlignedVector<T, count>>(narrow_pairs<T, count>(pack)));
  else
#endif
      if constexpr (converts_eights<A, count, T>) {
    for (int j = 0; j < count; j += 8) convert_eight(to + j, pack.lane + j);
  } else if constexpr (moves_as_vector<T, count>) {
    AlignedVector<T, count> vector;
    for (int j = 0; j < count; ++j) vector.lane[j] = static_cast<T>(pack[j]);
    store_vector<count>(to, vector);
  } else {
    for (int j = 0; j < count; ++j) to[j] = static_cast<T>(pack[j]);
  }
}

/// A pack of one value.
template <class A, int count>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE Pack<A, count> splat(A value) {
  Pack<A, count> pack;
  for (int j = 0; j < count; ++j) pack[j] = value;
  return pack;
}

/// Elements that a thread takes at once of those behind the last whole pack: wide packs, which are
/// the CPU's, leave enough for smaller ones.
template <int width>
inline constexpr int rest_width = width > 8 ? 8 : 1;

/// Calls `body(i, Width<w>)` for packs that cover [0, n) once, over all threads of the group: w is
/// the group's width, its rest_width or 1.
/// @tparam Index of elements; one of 32 bits costs a GPU half the instructions, and holds n and
/// what all threads take at once.
template <class Group, class Index, class Body>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void for_each_pack(const Group& group, Index n, Body body) {
  constexpr int width = Group::width;
  const auto rank = static_cast<Index>(group.rank()), size = static_cast<Index>(group.size());
  constexpr int few = rest_width<width>;
  Index whole = n - n % width;
  for (Index i = rank * width; i < whole; i += size * width) body(i, Width<width>{});
  if constexpr (few > 1)  // the packs of a thread alone
    for (; whole + few <= n; whole += few) body(whole, Width<few>{});
  if constexpr (width > 1)
    for (Index i = whole + rank; i < n; i += size) body(i, Width<1>{});
}

/// op over the lanes of a pack. A CPU lays halves onto each other, as vectors: few steps depend on
/// others, and none is a branch.
template <class T, int count, class Op>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T fold_lanes(const Pack<T, count>& pack, Op op) {
#if !LOCKSTEP_ALIGNED_PACKS
  if constexpr (count > 4) {
    typedef T HalfPack __attribute__((vector_size(sizeof(T) * count / 2)));
    HalfPack low, high;
    __builtin_memcpy(&low, pack.lane, sizeof(HalfPack));
    __builtin_memcpy(&high, pack.lane + count / 2, sizeof(HalfPack));
    low = op(low, high);
    Pack<T, count / 2> half;
    __builtin_memcpy(half.lane, &low, sizeof(HalfPack));
    return fold_lanes(half, op);
  }
#endif
  T result = pack[0];
  for (int j = 1; j < count; ++j) result = op(result, pack[j]);
  return result;
}

/// Folds packs of all widths of a group with one operation, each lane alone until the end.
template <class T, int width>
class LaneFold {
 public:
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE explicit LaneFold(T identity)
      : part_(splat<T, width>(identity)), few_(splat<T, few>(identity)), rest_(identity) {}
  template <int lanes, class Op>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void take(const Pack<T, lanes>& value, Op op) {
    if constexpr (lanes == width)
      for (int j = 0; j < width; ++j) part_[j] = op(part_[j], value[j]);
    else if constexpr (lanes > 1)
      for (int j = 0; j < lanes; ++j) few_[j] = op(few_[j], value[j]);
    else
      rest_ = op(rest_, value[0]);
  }
  template <class Op>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T total(Op op) const {
    if constexpr (few > 1) {
      return op(op(rest_, fold_lanes(few_, op)), fold_lanes(part_, op));
    } else {
      T result = rest_;
      for (int j = 0; j < width; ++j) result = op(result, part_[j]);
      return result;
    }
  }

 private:
  static constexpr int few = rest_width<width>;

  Pack<T, width> part_;
  Pack<T, few> few_;
  T rest_;
};

/// Folds `term(i, Width<w>)`, a pack, over [0, n) with `op`; all threads get the result.
template <class T, class Group, class Index, class Op, class Term>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T reduce_packs(const Group& group, Index n, T identity, Op op,
                                                  Term term) {
  LaneFold<T, Group::width> fold(identity);
  for_each_pack(group, n, [&](Index i, auto lanes) { fold.take(term(i, lanes), op); });
  return group.reduce(fold.total(op), op);
}

/// a + b, for `reduce`.
struct Plus {
  template <class T>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T operator()(T a, T b) const {
    return a + b;
  }
};

/// The larger of a and b, for `reduce`; of a number and NaN either.
struct Larger {
  template <class T>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T operator()(T a, T b) const {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>) return ::fmaxf(a, b);  // one instruction
#endif
    return a > b ? a : b;
  }
};

/// The group of the CPU: one thread, which takes as many elements at once as fill a few registers.
struct SoloGroup {
  static constexpr int width = 32;
  static constexpr std::int64_t rank() { return 0; }
  static constexpr std::int64_t size() { return 1; }
  static constexpr void sync() {}
  template <class T, class Op>
  LOCKSTEP_ALWAYS_INLINE T reduce(T x, Op) const {
    return x;
  }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
