#pragma once

#include "cuda/launch.hpp"
#include "cuda/vector.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Kernels over images [N, C, H, W], contiguous or channels-last, a thread an element.

namespace lockstep::cuda_kernels {

inline constexpr int image_threads = 256;

/// An image position.
struct Place {
  std::int64_t n, c, h, w;
};

/// Extents and strides of one [N, C, H, W] array.
struct Image {
  std::int64_t extent[4];
  std::int64_t stride[4];

  explicit Image(const ArrayView& view) {
    for (int d = 0; d < 4; ++d) {
      extent[d] = view.shape[d];
      stride[d] = view.strides[d];
    }
  }
  __device__ std::int64_t count() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
  __device__ std::int64_t offset(const Place& p) const {
    return p.n * stride[0] + p.c * stride[1] + p.h * stride[2] + p.w * stride[3];
  }
  /// Neighbouring indices are neighbours in memory: channels last or width last.
  __device__ Place place(std::int64_t index) const {
    if (stride[1] == 1 && extent[1] > 1) {
      const std::int64_t pixel = index / extent[1];
      const std::int64_t row = pixel / extent[3];
      return {row / extent[2], index % extent[1], row % extent[2], pixel % extent[3]};
    }
    const std::int64_t row = index / extent[3];
    const std::int64_t plane = row / extent[2];
    return {plane / extent[1], plane % extent[1], row % extent[2], index % extent[3]};
  }
};

/// Every position of an image takes what `gather` finds for it: no two threads write one element.
template <class T, class Gather>
__global__ void __launch_bounds__(image_threads) gather_kernel(Image to, T* values, Gather gather) {
  for (std::int64_t i = global_thread(); i < to.count(); i += grid_threads()) {
    const Place at = to.place(i);
    values[to.offset(at)] = convert<T>(gather(at));
  }
}

/// Sets every element of an image to `gather(place)`.
template <class T, class Gather>
void launch_gather(const ArrayView& to, const Gather& gather, StreamRef stream) {
  launch(stream, grid_for(to.numel(), image_threads), image_threads, 0, gather_kernel<T, Gather>,
         Image(to), to.as<T>(), gather);
}

}  // namespace lockstep::cuda_kernels
