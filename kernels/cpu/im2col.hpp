#pragma once

#include <algorithm>
#include <cstdint>

#include "arguments/convolution.hpp"

/// @file
/// Convolution as a matrix product: the columns of a matrix hold the patches of an image that the
/// kernel sees (Chellapilla et al. 2006).

namespace lockstep::cpu_kernels {

/// One dimension of a convolution: which output positions see a given tap of the kernel.
struct Taps {
  std::int64_t first, last;  ///< output positions [first, last) that read inside the image
  std::int64_t start;        ///< image position that output position 0 would read
  std::int64_t step;         ///< image positions from one output position to the next

  Taps(std::int64_t tap, std::int64_t in, std::int64_t out, const kernels::ConvGeometry& geometry,
       std::size_t d)
      : start(tap * geometry.dilation[d] - geometry.padding[d]), step(geometry.stride[d]) {
    first = start >= 0 ? 0 : std::min(out, (-start + step - 1) / step);
    last = in > start ? std::clamp((in - start + step - 1) / step, first, out) : first;
  }
};

/// The patches of one group of an image as a matrix [rows, output positions].
struct Patches {
  ArrayView image;   ///< [N, C, H, W]
  ArrayView weight;  ///< gives each tap its row: the offset of its weight within an output channel
  kernels::ConvGeometry geometry;
  std::int64_t out_height, out_width;

  /// Number of rows: taps of one output channel.
  std::int64_t rows() const { return weight.shape[1] * weight.shape[2] * weight.shape[3]; }
  /// Number of columns.
  std::int64_t columns() const { return out_height * out_width; }

  /// Calls `visit(row, channel, height taps, width taps)` for every row of group `group`.
  template <class Visit>
  void for_each_row(std::int64_t group, Visit&& visit) const {
    const std::int64_t channels = weight.shape[1];
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < weight.shape[2]; ++i)
        for (std::int64_t j = 0; j < weight.shape[3]; ++j) {
          const auto at = [&](std::int64_t index, int d) { return index * weight.strides[d]; };
          visit(at(c, 1) + at(i, 2) + at(j, 3), group * channels + c,
                Taps(i, image.shape[2], out_height, geometry, 0),
                Taps(j, image.shape[3], out_width, geometry, 1));
        }
  }

  /// Copies the patches of one image and group; taps outside the image are zero.
  template <class T>
  void gather(T* matrix, std::int64_t n, std::int64_t group) const {
    const auto& strides = image.strides;
    for_each_row(group, [&](std::int64_t row, std::int64_t c, const Taps& h, const Taps& w) {
      T* to = matrix + row * columns();
      std::fill(to, to + columns(), T{});
      const T* plane = image.as<const T>() + n * strides[0] + c * strides[1];
      for (std::int64_t y = h.first; y < h.last; ++y) {
        const T* line = plane + (h.start + y * h.step) * strides[2] + w.start * strides[3];
        for (std::int64_t x = w.first; x < w.last; ++x)
          to[y * out_width + x] = line[x * w.step * strides[3]];
      }
    });
  }

  /// Adds a matrix back to the image that its patches were taken from: the adjoint of `gather`.
  /// `sums` is a contiguous [channels of the group, H, W].
  template <class Sum>
  void scatter(Sum* sums, const Sum* matrix, std::int64_t group) const {
    const std::int64_t height = image.shape[2], width = image.shape[3];
    for_each_row(group, [&](std::int64_t row, std::int64_t c, const Taps& h, const Taps& w) {
      const Sum* from = matrix + row * columns();
      Sum* plane = sums + (c - group * weight.shape[1]) * height * width;
      for (std::int64_t y = h.first; y < h.last; ++y) {
        Sum* line = plane + (h.start + y * h.step) * width + w.start;
        for (std::int64_t x = w.first; x < w.last; ++x) line[x * w.step] += from[y * out_width + x];
      }
    });
  }
};

}  // namespace lockstep::cpu_kernels
