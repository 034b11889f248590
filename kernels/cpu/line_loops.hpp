#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Loops along lines of an array.

namespace lockstep::cpu_kernels {

/// Lines to add up or multiply: element i of line k stands at [i * step + k * next]. A step may be
/// negative.
struct ScanLines {
  void* out;
  const void* in;
  std::int64_t out_step, out_next;
  std::int64_t in_step, in_next;
  std::int64_t length, lines;
};

struct LineLoops {
  static constexpr std::size_t dtypes = 8, accumulate_types = 3;

  /// Write the running sum and the running product of each line.
  void (*running_sums[dtypes])(const ScanLines& lines) = {};
  void (*running_products[dtypes])(const ScanLines& lines) = {};
  /// The first of n elements that equals `value`, of which there is one; a NaN equals a NaN.
  std::int64_t (*first_equal[accumulate_types])(const void* x, const void* value,
                                                std::int64_t n) = {};
};

}  // namespace lockstep::cpu_kernels
