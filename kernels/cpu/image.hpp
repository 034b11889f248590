#pragma once

#include <cstdint>

#include "lockstep/core/array_view.hpp"

namespace lockstep::cpu_kernels {

/// An [N, C, positions] reading of a contiguous or channels-last array [N, C, ...].
struct Planes {
  std::int64_t images, channels, positions;
  std::int64_t image_stride, channel_stride, position_stride;

  /// @throws InvalidArgument unless the dimensions after C can be walked with one stride. Nobody
  /// walks an empty array, whose strides may be any.
  explicit Planes(const ArrayView& view)
      : images(view.shape[0]),
        channels(view.shape[1]),
        positions(1),
        image_stride(view.strides[0]),
        channel_stride(view.strides[1]),
        position_stride(1) {
    for (int d = view.rank() - 1; d >= 2; --d) {
      if (view.shape[d] == 1) continue;
      if (positions == 1) position_stride = view.strides[d];
      LOCKSTEP_CHECK(view.strides[d] == positions * position_stride || view.numel() == 0,
                     InvalidArgument, "expected a contiguous or channels-last array, got shape ",
                     view.shape, " with strides ", view.strides);
      positions *= view.shape[d];
    }
  }
  /// Offset of the first position of a channel of an image.
  std::int64_t offset(std::int64_t image, std::int64_t channel) const {
    return image * image_stride + channel * channel_stride;
  }
};

}  // namespace lockstep::cpu_kernels
