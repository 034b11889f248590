#pragma once

#include <array>
#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Convolution and pooling over images [N, C, H, W]. Row-major and channels-last memory are both
/// taken as they are; the result has the input's memory order.

namespace lockstep {

/// A height and a width; one number means both.
struct Size2d {
  std::int64_t height = 1;
  std::int64_t width = 1;
  constexpr Size2d() = default;
  /// The same extent both ways.
  constexpr Size2d(std::int64_t both) : height(both), width(both) {}  // NOLINT: implicit by intent
  constexpr Size2d(std::int64_t h, std::int64_t w) : height(h), width(w) {}
};

/// Geometry of `conv2d`.
struct Conv2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
};
/// Cross-correlation with learned kernels.
/// @param x [N, C, H, W]. @param weight [out, C / groups, KH, KW]. @param bias [out] or undefined.
/// @throws InvalidArgument for shapes or options that do not fit.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

/// Geometry of pooling; a stride of 0 means the kernel's size.
struct Pool2dOptions {
  Size2d kernel = 1;
  Size2d stride = 0;
  Size2d padding = 0;
  bool ceil_mode = false;         ///< windows may leave the image at the end
  bool count_include_pad = true;  ///< means divide by the whole window
};
/// Largest value of each window.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
/// Mean of each window.
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
/// Means of windows chosen so that the result has the given size.
Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output);

}  // namespace lockstep
