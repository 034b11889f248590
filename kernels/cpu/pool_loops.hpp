#pragma once

#include <cstdint>

/// @file
/// Loops over the channels of one position of a channels-last image.

namespace lockstep::cpu_kernels {

/// One position of the result, and the rectangle of the other image that it is computed from: a
/// window of x, or in backward the windows that cover the position. Strides are in elements.
struct PoolCell {
  void* out = nullptr;
  std::int32_t* index = nullptr;           ///< max: of what was largest
  const void* in = nullptr;                ///< x or dy, position (0, 0)
  const std::int32_t* in_index = nullptr;  ///< max backward: position (0, 0)
  std::int64_t row_stride = 0, column_stride = 0, index_row_stride = 0, index_column_stride = 0;
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
  std::int64_t width = 0;     ///< of x: position (h, w) is h * width + w
  std::int64_t position = 0;  ///< max backward: of the cell in x
  /// What each row and column of windows brings to the divisor of a mean. Forward has one window.
  const std::int64_t *row_extent = nullptr, *column_extent = nullptr;
  std::int64_t channels = 0;
};

/// Pooling of one dtype.
struct PoolLoops {
  /// Means of planes that lie one behind another, each of so many positions.
  void (*plane_means)(void* out, const void* in, std::int64_t planes,
                      std::int64_t positions) = nullptr;
  void (*max)(const PoolCell& cell) = nullptr;
  void (*max_backward)(const PoolCell& cell) = nullptr;
  void (*mean)(const PoolCell& cell) = nullptr;
  void (*mean_backward)(const PoolCell& cell) = nullptr;
};

}  // namespace lockstep::cpu_kernels
