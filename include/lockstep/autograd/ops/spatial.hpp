#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <limits>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Convolution, pooling and resizing of images [N, C, H, W] and sequences. Row-major and
/// channels-last memory are both taken as they are; the result has the input's memory order.

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

/// As the padding of `conv1d`, `conv2d` and their layers: as many zeros as keep the extent,
/// PyTorch's padding="same"; one more at the end where they are odd in number. Needs a stride of 1.
inline constexpr std::int64_t same_padding = std::numeric_limits<std::int64_t>::min();

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

/// Geometry of `conv1d`.
struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};
/// Cross-correlation of sequences with learned kernels.
/// @param x [N, C, L]. @param weight [out, C / groups, K]. @param bias [out] or undefined.
/// @throws InvalidArgument for shapes or options that do not fit.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

/// Geometry of `conv_transpose2d`: of the convolution that it turns round.
struct ConvTranspose2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d output_padding = 0;  ///< rows and columns more at the end; below stride or dilation
  Size2d dilation = 1;
  std::int64_t groups = 1;
};
/// The map from results to inputs that is the transpose of a convolution, also called fractionally
/// strided (Zeiler et al. 2010): (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding +
/// 1 rows of H.
/// @param x [N, C, H, W]. @param weight [C, out / groups, KH, KW]. @param bias [out] or undefined.
/// @throws InvalidArgument for shapes or options that do not fit.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

/// Geometry of `conv_transpose1d`, as ConvTranspose2dOptions'.
struct ConvTranspose1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;  ///< positions more at the end; below stride or dilation
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};
/// The same of sequences.
/// @param x [N, C, L]. @param weight [C, out / groups, K]. @param bias [out] or undefined.
/// @throws InvalidArgument for shapes or options that do not fit.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {});

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
/// The same of square windows: max_pool2d(x, 2).
Tensor max_pool2d(const Tensor& x, std::integral auto kernel, Size2d stride = 0,
                  Size2d padding = 0) {
  return max_pool2d(x, Pool2dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
/// Means of square windows: avg_pool2d(x, 2).
Tensor avg_pool2d(const Tensor& x, std::integral auto kernel, Size2d stride = 0,
                  Size2d padding = 0) {
  return avg_pool2d(x, Pool2dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
/// Means of windows chosen so that the result has the given size.
Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output);

/// Geometry of pooling sequences; a stride of 0 means the kernel's size.
struct Pool1dOptions {
  std::int64_t kernel = 1;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
  bool ceil_mode = false;         ///< windows may leave the sequence at the end
  bool count_include_pad = true;  ///< means divide by the whole window
};
/// Largest value of each window of sequences [N, C, L].
Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options);
/// Mean of each window of sequences [N, C, L].
Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options);
/// The same of windows of a length: max_pool1d(x, 2).
Tensor max_pool1d(const Tensor& x, std::integral auto kernel, std::int64_t stride = 0,
                  std::int64_t padding = 0) {
  return max_pool1d(x, Pool1dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
/// Means of windows of a length: avg_pool1d(x, 2).
Tensor avg_pool1d(const Tensor& x, std::integral auto kernel, std::int64_t stride = 0,
                  std::int64_t padding = 0) {
  return avg_pool1d(x, Pool1dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
/// Means of windows of sequences [N, C, L], chosen so that the result has the given length.
Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output);

/// Channels as pixels: [..., C * factor^2, H, W] becomes [..., C, H * factor, W * factor] (Shi et
/// al. 2016), in row-major order. Any dtype. @throws InvalidArgument for channels that do not make
/// whole pixels.
Tensor pixel_shuffle(const Tensor& x, std::int64_t factor);
/// The same back: [..., C, H * factor, W * factor] becomes [..., C * factor^2, H, W].
/// @throws InvalidArgument for rows or columns that the factor does not divide.
Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor);

/// Factors of height and width; one number means both.
struct Scale2d {
  double height = 1;
  double width = 1;
  constexpr Scale2d() = default;
  /// The same factor both ways.
  constexpr Scale2d(double both) : height(both), width(both) {}  // NOLINT: implicit by intent
  constexpr Scale2d(double h, double w) : height(h), width(w) {}
};

/// What `interpolate` takes for positions between those of the input.
enum class InterpolationMode : unsigned char {
  nearest,   ///< the position before, as PyTorch's "nearest" does for sizes and whole factors
  bilinear,  ///< the mean of four neighbours, weighted by how near they are
};

/// Options of `interpolate`; names and defaults are PyTorch's.
struct InterpolateOptions {
  Size2d size = 0;           ///< of the result; 0: given by `scale_factor`
  Scale2d scale_factor = 0;  ///< how often the result's extents hold the input's, rounded down
  InterpolationMode mode = InterpolationMode::nearest;
  bool align_corners = false;  ///< bilinear: the outermost positions fall on each other
};
/// The image at another size.
/// @throws InvalidArgument unless either size or factor is given and gives at least one position.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace lockstep
