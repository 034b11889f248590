#pragma once

#include <algorithm>

#include "arguments/pooling.hpp"
#include "cuda/image.hpp"

/// @file
/// The mean of whole channels-last images, as classifiers end with, and its gradient: vectors of
/// channels, and no division an element.

namespace lockstep::cuda_kernels {

/// Images [N, C, H, W] and one vector [C] for each of them.
struct GlobalPool {
  std::uint32_t count = 0;  ///< vectors of 16 bytes in [N, C]
  Divider vectors;          ///< divides one's number by those of an image
  std::int64_t image_stride = 0, pixel_stride = 0, pooled_stride = 0, pixels = 0;
  std::int64_t divisor = 1;  ///< of the mean

  /// Calls `visit(offset in [N, C], offset of the image's first pixel)` for the thread's vector.
  template <int lanes, class Visit>
  __device__ void for_own_vector(const Visit& visit) const {
    const auto own = static_cast<std::uint32_t>(global_thread());
    if (own >= count) return;
    const std::uint32_t image = vectors.divide(own);
    const std::int64_t channel = std::int64_t{own - image * vectors.divisor} * lanes;
    visit(image * pooled_stride + channel, image * image_stride + channel);
  }
};

/// What the sums of the first window are divided by.
inline std::int64_t first_divisor(const PoolWindows& windows) {
  const auto extent = [&](std::size_t d) {
    return functional::pool_extent(windows.axis[d], 0, windows.count_padding);
  };
  return functional::pool_divisor(extent(0), extent(1));
}

/// Whether there is one window, the image.
inline bool is_of_image(const PoolWindows& windows) {
  return std::ranges::all_of(windows.axis, [](const PoolAxis& axis) {
    const functional::PoolRange window = functional::pool_window(axis, 0);
    return axis.out == 1 && window.begin == 0 && window.end == axis.in;
  });
}

/// Whether the pool is the mean of all pixels, and those are many: more than a thread should add
/// up.
inline bool is_mean_of_large_image(const PoolWindows& windows) {
  constexpr std::int64_t few_pixels = 16;
  const std::int64_t pixels = windows.axis[0].in * windows.axis[1].in;
  return pixels > few_pixels && is_of_image(windows) && first_divisor(windows) == pixels;
}

/// The pool if its one window is the image, and all lies in vectors; else one of no vectors.
template <class T>
GlobalPool global_pool(const PoolWindows& windows, const ArrayView& pooled,
                       const ArrayView& image) {
  const std::int64_t channels = image.shape[1], height = image.shape[2], width = image.shape[3];
  const std::int64_t pixel_stride = width > 1 ? image.strides[3] : image.strides[2];
  const bool in_one_line = height == 1 || image.strides[2] == width * pixel_stride;
  const bool by_channel = image.strides[1] == 1 && pooled.strides[1] == 1 && in_one_line;
  const std::int64_t count = image.shape[0] * channels / lanes_of<T>;
  if (!is_of_image(windows) || !by_channel || channels % lanes_of<T> != 0 ||
      !is_aligned(image.data) || !is_aligned(pooled.data) || count == 0 || count > INT32_MAX)
    return {};
  return {.count = static_cast<std::uint32_t>(count),
          .vectors = Divider(static_cast<std::uint32_t>(channels / lanes_of<T>)),
          .image_stride = image.strides[0],
          .pixel_stride = pixel_stride,
          .pooled_stride = pooled.strides[0],
          .pixels = height * width,
          .divisor = first_divisor(windows)};
}

/// Pixels whose vectors a thread loads at once, or writes.
inline constexpr int pixels_at_once = 8;

template <class T>
__global__ void __launch_bounds__(image_threads)
    global_mean_kernel(LOCKSTEP_GRID_CONSTANT(GlobalPool) pool, T* y, const T* x) {
  using A = AccumulateType<T>;
  constexpr int lanes = lanes_of<T>;
  pool.for_own_vector<lanes>([&](std::int64_t pooled, std::int64_t image) {
    functional::PoolSum<A> sums[lanes];
    for (std::int64_t first = 0; first < pool.pixels; first += pixels_at_once) {
      Vector<T, lanes> loaded[pixels_at_once];
      LOCKSTEP_UNROLL
      for (int k = 0; k < pixels_at_once; ++k)
        if (first + k < pool.pixels)
          loaded[k] = load_vector<lanes>(x + image + (first + k) * pool.pixel_stride);
      LOCKSTEP_UNROLL
      for (int k = 0; k < pixels_at_once; ++k) {
        if (first + k >= pool.pixels) continue;
        LOCKSTEP_UNROLL
        for (int j = 0; j < lanes; ++j) sums[j].add(convert<A>(loaded[k].lane[j]));
      }
    }
    Vector<T, lanes> mean;
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j)
      mean.lane[j] = convert<T>(sums[j].sum / static_cast<A>(pool.divisor));
    store_vector<lanes>(y + pooled, mean);
  });
}

/// blockIdx.y: which of the images' pixels, pixels_at_once of them.
template <class T>
__global__ void __launch_bounds__(image_threads)
    global_mean_backward_kernel(LOCKSTEP_GRID_CONSTANT(GlobalPool) pool, T* dx, const T* dy) {
  using A = AccumulateType<T>;
  constexpr int lanes = lanes_of<T>;
  pool.for_own_vector<lanes>([&](std::int64_t pooled, std::int64_t image) {
    Vector<T, lanes> share = load_vector<lanes>(dy + pooled);
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j)
      share.lane[j] = convert<T>(convert<A>(share.lane[j]) / static_cast<A>(pool.divisor));
    const std::int64_t step = std::int64_t{gridDim.y} * pixels_at_once;
    for (std::int64_t first = std::int64_t{blockIdx.y} * pixels_at_once; first < pool.pixels;
         first += step) {
      LOCKSTEP_UNROLL
      for (int k = 0; k < pixels_at_once; ++k)
        if (first + k < pool.pixels)
          store_vector<lanes>(dx + image + (first + k) * pool.pixel_stride, share);
    }
  });
}

/// True if it did. @param pool for no vectors nothing is done.
template <class T>
bool global_mean(const GlobalPool& pool, T* y, const T* x, StreamRef stream) {
  if (pool.count == 0) return false;
  const unsigned blocks = (pool.count + image_threads - 1) / image_threads;
  launch(stream, blocks, image_threads, 0, global_mean_kernel<T>, pool, y, x);
  return true;
}

/// The same of its gradient.
template <class T>
bool global_mean_backward(const GlobalPool& pool, T* dx, const T* dy, StreamRef stream) {
  if (pool.count == 0) return false;
  const unsigned blocks = (pool.count + image_threads - 1) / image_threads;
  const std::int64_t parts = (pool.pixels + pixels_at_once - 1) / pixels_at_once;
  const auto across = static_cast<unsigned>(std::min(parts, std::int64_t{65535}));
  launch(stream, dim3(blocks, across), dim3(image_threads), 0, global_mean_backward_kernel<T>, pool,
         dx, dy);
  return true;
}

}  // namespace lockstep::cuda_kernels
