#pragma once

#include "cuda/launch.hpp"
#include "cuda/layout.hpp"
#include "cuda/row_access.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Kernels over images [N, C, H, W], contiguous or channels-last.

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

/// Rows of channels-last images, some to a block, so that what their windows share is read once.
struct ImageTiles {
  std::uint32_t rows_of_tile, tiles_of_image;
  Divider vectors, width;  ///< vectors of a pixel, and pixels of a row
};

inline constexpr int rows_of_image_tile = 8;

/// Calls `visit.at<lanes>(place)` for all places whose channel is a multiple of `lanes`.
template <int lanes, class Visit>
__global__ void __launch_bounds__(image_threads)
    image_tiles_kernel(LOCKSTEP_GRID_CONSTANT(Image) image,
                       LOCKSTEP_GRID_CONSTANT(ImageTiles) tiles,
                       LOCKSTEP_GRID_CONSTANT(Visit) visit) {
  const std::int64_t n = blockIdx.x / tiles.tiles_of_image;
  const std::int64_t top = blockIdx.x % tiles.tiles_of_image * tiles.rows_of_tile;
  const std::int64_t left_over = image.extent[2] - top;
  const std::int64_t rows = left_over < tiles.rows_of_tile ? left_over : tiles.rows_of_tile;
  const auto count = static_cast<std::uint32_t>(rows * image.extent[3]) * tiles.vectors.divisor;
  for (std::uint32_t i = threadIdx.x; i < count; i += image_threads) {
    const std::uint32_t pixel = tiles.vectors.divide(i), row = tiles.width.divide(pixel);
    const std::int64_t channel = (i - pixel * tiles.vectors.divisor) * lanes;
    visit.template at<lanes>(Place{n, channel, top + row, pixel - row * tiles.width.divisor});
  }
}

/// The same for every place, one channel at a time, in any order of memory.
template <class Visit>
__global__ void __launch_bounds__(image_threads)
    image_places_kernel(LOCKSTEP_GRID_CONSTANT(Image) image, LOCKSTEP_GRID_CONSTANT(Visit) visit) {
  for (std::int64_t i = global_thread(); i < image.count(); i += grid_threads())
    visit.template at<1>(image.place(i));
}

/// Calls `visit.at<lanes>(place)` for the places of an image: with as many channels as T has
/// elements in 16 bytes where all arrays are channels-last and aligned, else with one.
/// @param others the other images that are visited.
template <class T, class Visit, class... Views>
void visit_image(StreamRef stream, const ArrayView& image, const Visit& visit,
                 const Views&... others) {
  constexpr int lanes = lanes_of<T>;
  if (image.numel() == 0) return;
  const auto by_channel = [](const ArrayView& view) {
    return view.strides[1] == 1 && view.shape[1] % lanes == 0 && is_aligned(view.data);
  };
  const std::int64_t vectors = image.shape[1] / lanes, width = image.shape[3];
  const std::int64_t rows = std::min(image.shape[2], std::int64_t{rows_of_image_tile});
  const std::int64_t tiles = (image.shape[2] + rows - 1) / rows;
  const bool fits = rows * width * vectors < (1 << 30) && tiles * image.shape[0] <= INT32_MAX;
  if (!(by_channel(image) && (by_channel(others) && ...) && fits))
    return launch(stream, grid_for(image.numel(), image_threads), image_threads, 0,
                  image_places_kernel<Visit>, Image(image), visit);
  launch(stream, static_cast<unsigned>(tiles * image.shape[0]), image_threads, 0,
         image_tiles_kernel<lanes, Visit>, Image(image),
         ImageTiles{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(tiles),
                    Divider(static_cast<std::uint32_t>(vectors)),
                    Divider(static_cast<std::uint32_t>(width))},
         visit);
}

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
