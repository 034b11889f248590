#pragma once

#include <array>
#include <cstdint>

#include "arguments/family.hpp"
#include "functional/pooling.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Pooling over images [N, C, H, W], each contiguous or channels-last. The output's shape is the
/// caller's to compute (ceil mode too).

namespace lockstep::kernels {

/// The windows of a pooling op.
struct PoolGeometry {
  std::array<std::int64_t, 2> kernel{1, 1};  ///< height, width
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  /// A mean's divisor counts the padding, but not what a window of ceil mode has beyond it.
  bool count_include_pad = true;
  /// PyTorch's adaptive windows, [floor(i * in / out), ceil((i + 1) * in / out)), instead of those
  /// above.
  bool adaptive = false;
};

/// The geometry over an image and its pooled result.
inline PoolWindows windows_of(const PoolGeometry& geometry, const ArrayView& pooled,
                              const ArrayView& image) {
  PoolWindows windows{.count_padding = geometry.count_include_pad && !geometry.adaptive};
  for (std::size_t d = 0; d < 2; ++d)
    windows.axis[d] = {.in = image.shape[static_cast<int>(2 + d)],
                       .out = pooled.shape[static_cast<int>(2 + d)],
                       .kernel = geometry.kernel[d],
                       .stride = geometry.stride[d],
                       .padding = geometry.padding[d],
                       .adaptive = geometry.adaptive};
  return windows;
}

/// y = window maximum; NaN counts as the largest.
struct MaxPoolArguments {
  ArrayView y = {};
  ArrayView index = {};  ///< i32, y's shape: flat position h * W + w of the first maximum
  ArrayView x = {};
  PoolGeometry geometry = {};
};

/// dx = dy summed at the positions that `index` names.
struct MaxPoolBackwardArguments {
  ArrayView dx = {}, dy = {}, index = {};
  PoolGeometry geometry = {};
};

/// y = window mean.
struct AveragePoolArguments {
  ArrayView y = {}, x = {};
  PoolGeometry geometry = {};
};

/// dx of the window mean.
struct AveragePoolBackwardArguments {
  ArrayView dx = {}, dy = {};
  PoolGeometry geometry = {};
};

}  // namespace lockstep::kernels

/// Pooling of one backend. Work runs in the order of the stream.
#define LOCKSTEP_POOLING_KERNELS(KERNEL)         \
  KERNEL(max, MaxPoolArguments)                  \
  KERNEL(max_backward, MaxPoolBackwardArguments) \
  KERNEL(average, AveragePoolArguments)          \
  KERNEL(average_backward, AveragePoolBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(pooling, PoolingKernels, LOCKSTEP_POOLING_KERNELS)
