#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Loops over the channels of images, a channel a column.

namespace lockstep::cpu_kernels {

/// Rows of neighbouring columns, in up to four arrays of one dtype; strides are between rows, in
/// elements.
struct ChannelBlock {
  char *x = nullptr, *dy = nullptr, *out = nullptr;
  char* side = nullptr;  ///< forward: the residual; backward: the result behind ReLU
  std::int64_t x_stride = 0, dy_stride = 0, out_stride = 0, side_stride = 0;
  std::int64_t rows = 0, columns = 0;
};

/// One value a column, in the accumulation type, of those that a loop reads.
struct ChannelVectors {
  const void *mean = nullptr, *rstd = nullptr;
  const void* scale = nullptr;  ///< forward: rstd * weight
  const void* bias = nullptr;
  const void* weight = nullptr;
  const void *dy_sum = nullptr, *product_sum = nullptr;  ///< of dy, and of dy * xhat
  double inverse_count = 0;                              ///< of what was summed
};

/// Batch norm over blocks of one dtype, of which each column is a channel, or which are of one
/// channel: then all columns have one value in what is said to have one a column.
struct ChannelLoops {
  /// Merges the columns' moments into those of `count` values of each before.
  void (*moments)(const ChannelBlock& block, double* mean, double* squares, double count) = nullptr;
  /// out = (x - mean) * scale + bias, plus the residual, through ReLU where asked for
  void (*normalise)(const ChannelBlock& block, const ChannelVectors& vectors, bool relu) = nullptr;
  /// Adds the columns' sums of dy and of dy * xhat. With a result behind ReLU dy counts where that
  /// is positive, and out is dy there and else 0.
  void (*gradient_sums)(const ChannelBlock& block, const ChannelVectors& vectors, double* dy_sum,
                        double* product_sum) = nullptr;
  /// out = dx
  void (*input_gradient)(const ChannelBlock& block, const ChannelVectors& vectors) = nullptr;
};

}  // namespace lockstep::cpu_kernels
