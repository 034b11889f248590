#pragma once

#include <array>
#include <cstdint>

#include "functional/math.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Pooling: which positions a window covers, and what is made of them. Kernels bring the loops.

namespace lockstep {

/// The windows along height or width.
struct PoolAxis {
  std::int64_t in = 1;   ///< extent of the image
  std::int64_t out = 1;  ///< number of windows
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool adaptive = false;  ///< window i is [floor(i in / out), ceil((i + 1) in / out))
};

/// The windows over an image.
struct PoolWindows {
  std::array<PoolAxis, 2> axis = {};  ///< height, width
  bool count_padding = false;         ///< a mean's divisor counts the padding
};

}  // namespace lockstep

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// Positions [begin, end).
struct PoolRange {
  std::int64_t begin, end;
  LOCKSTEP_HD std::int64_t extent() const { return end - begin; }
};

/// Positions of the image that window i covers, clipped to the image.
LOCKSTEP_HD inline PoolRange pool_window(const PoolAxis& axis, std::int64_t i) {
  if (axis.adaptive) return {i * axis.in / axis.out, ((i + 1) * axis.in + axis.out - 1) / axis.out};
  const std::int64_t start = i * axis.stride - axis.padding;
  const std::int64_t end = start + axis.kernel < axis.in ? start + axis.kernel : axis.in;
  const std::int64_t begin = start > 0 ? start : 0;
  return {begin, end > begin ? end : begin};
}

/// Windows that cover position `at` of the image.
LOCKSTEP_HD inline PoolRange pool_windows_over(const PoolAxis& axis, std::int64_t at) {
  if (axis.adaptive) {
    const std::int64_t end = ((at + 1) * axis.out + axis.in - 1) / axis.in;
    return {at * axis.out / axis.in, end < axis.out ? end : axis.out};
  }
  const std::int64_t padded = at + axis.padding;
  const std::int64_t first = padded - axis.kernel + 1;
  const std::int64_t end = padded / axis.stride + 1;
  return {first > 0 ? (first + axis.stride - 1) / axis.stride : 0, end < axis.out ? end : axis.out};
}

/// What window i along an axis brings to the divisor of a mean: its extent within the image, or
/// within the padded image.
LOCKSTEP_HD inline std::int64_t pool_extent(const PoolAxis& axis, std::int64_t i,
                                            bool count_padding) {
  if (!count_padding) return pool_window(axis, i).extent();
  const std::int64_t start = i * axis.stride - axis.padding;
  const std::int64_t limit = axis.in + axis.padding;
  const std::int64_t end = start + axis.kernel < limit ? start + axis.kernel : limit;
  return end > start ? end - start : 0;
}

/// What the sum of a window is divided by, given what its axes bring: 1 for an empty window.
LOCKSTEP_HD inline std::int64_t pool_divisor(std::int64_t rows, std::int64_t columns) {
  return rows * columns > 0 ? rows * columns : 1;
}

/// The first maximum of a window; NaN is larger than all. `T` is the accumulation type. Without a
/// branch, so that loops over channels vectorise.
template <class T, class Index = std::int64_t>
struct PoolMaximum {
  T value = -T(__builtin_huge_valf());
  Index index = -1;  ///< -1: no element yet

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void take(T candidate, Index at) {
    const bool first_nan = (candidate != candidate) & (value == value);
    const bool better = (index < 0) | (candidate > value) | first_nan;
    value = better ? candidate : value;
    index = better ? at : index;
  }
};

/// A compensated sum (Kahan 1965): one thread adds a whole window.
template <class T>
struct PoolSum {
  T sum = 0;
  T lost = 0;

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void add(T value) {
    const T next = sum + (value - lost);
    // Infinities and NaN stay what they are.
    lost = next - next == T(0) ? (next - sum) - (value - lost) : T(0);
    sum = next;
  }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
