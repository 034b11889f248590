#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/arrivals.hpp"
#include "cuda/launch.hpp"
#include "cuda/layout.hpp"
#include "cuda/row_access.hpp"

/// @file
/// How a grid goes over [N, C, ...], row-major or channels-last: a thread stays with one vector's
/// channels and walks down the batch, so that what belongs to a channel is loaded once.

namespace lockstep::cuda_kernels {

inline constexpr int tile_threads = 256;
/// Blocks that a multiprocessor holds at once, which bounds the registers of a kernel: a grid of
/// `detail::splits_of` then runs whole on an H100, without a last, half-empty wave.
inline constexpr int tile_blocks = 4;

/// The vectors of an array, neighbours in memory side by side in channels-last arrays. In row-major
/// ones a vector's elements are of one channel, and a column holds all vectors of a channel. All
/// arrays of a call lie in the same order.
struct ChannelTiles {
  std::int64_t channels = 0;
  std::int64_t rows = 0, columns = 0;
  std::int64_t rows_of_image = 0;
  std::int64_t image_stride = 0, row_stride = 0, column_stride = 0;
  Divider images;  ///< divides a row by rows_of_image, where rows are few enough
  bool is_divided = false, is_wide = false;
  int width = 1;  ///< threads of a block side by side
  unsigned splits = 1;
  std::int64_t rows_of_block = 0;
  unsigned groups = 1;  ///< of a tile's blocks, by which what they leave is added up

  dim3 grid() const { return {static_cast<unsigned>((columns + width - 1) / width), splits, 1}; }
  dim3 block() const {
    return {static_cast<unsigned>(width), static_cast<unsigned>(tile_threads / width), 1};
  }
  __device__ std::int64_t column() const {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  }
  /// Calls `visit` with the offsets of the thread's vectors: `at_once` of them, the last ones
  /// alone.
  template <int at_once = 1, class Visit>
  __device__ void for_each_row(const Visit& visit) const {
    if (column() >= columns) return;
    const std::int64_t start = column() * column_stride;
    if (!is_divided)
      return walk<at_once>([&](std::int64_t row) { return start + row * row_stride; }, visit);
    walk<at_once>(
        [&](std::int64_t row) {
          const std::int64_t image =
              is_wide ? row / rows_of_image : images.divide(static_cast<std::uint32_t>(row));
          return start + image * image_stride + (row - image * rows_of_image) * row_stride;
        },
        visit);
  }

 private:
  template <int at_once, class Offset, class Visit>
  __device__ void walk(const Offset& offset, const Visit& visit) const {
    const std::int64_t first = blockIdx.y * rows_of_block;
    const std::int64_t last = first + rows_of_block < rows ? first + rows_of_block : rows;
    const std::int64_t step = blockDim.y;
    std::int64_t row = first + threadIdx.y;
    if constexpr (at_once > 1) {
      for (; row + (at_once - 1) * step < last; row += at_once * step) {
        std::int64_t offsets[at_once];
        LOCKSTEP_UNROLL
        for (int k = 0; k < at_once; ++k) offsets[k] = offset(row + k * step);
        visit(offsets);
      }
    }
    for (; row < last; row += step) {
      const std::int64_t offsets[1] = {offset(row)};
      visit(offsets);
    }
  }
};

/// The channels of a thread: those of a vector's lanes, or one.
template <int lanes, bool is_planar>
inline constexpr int channels_of_thread = is_planar ? 1 : lanes;

namespace detail {

/// Enough blocks to fill a present GPU, with some rows for each thread.
inline unsigned splits_of(const ChannelTiles& tiles) {
  constexpr std::int64_t blocks = 132 * tile_blocks, least_rows = 4;
  const std::int64_t across = (tiles.columns + tiles.width - 1) / tiles.width;
  const std::int64_t rows = std::int64_t{tile_threads / tiles.width} * least_rows;
  const std::int64_t most = std::min((tiles.rows + rows - 1) / rows, std::int64_t{65535});
  return static_cast<unsigned>(
      std::clamp((blocks + across - 1) / across, std::int64_t{1}, std::max(most, std::int64_t{1})));
}

/// Loads of a thread that are under way together where blocks add up what others have left.
inline constexpr unsigned partials_at_once = 4;

/// One group where its last block's threads load all at once, else the square root.
inline unsigned groups_of(const ChannelTiles& tiles, unsigned channels_of_block) {
  const unsigned threads = tile_threads / channels_of_block;
  if (tiles.splits <= partials_at_once * threads) return 1;
  return static_cast<unsigned>(std::ceil(std::sqrt(tiles.splits)));
}

/// The stride of an array's pixels, which lie in one line.
inline std::int64_t pixel_stride(const ArrayView& x) {
  for (int d = x.rank() - 1; d >= 2; --d)
    if (x.shape[d] > 1) return x.strides[d];
  return 1;
}

}  // namespace detail

/// Calls `visit.operator()<lanes, is_planar>(tiles)` for arrays like `x`.
/// @param arrays all arrays that go through the tiles; absent ones are null.
template <class T, class Visit, class... Arrays>
void with_channel_tiles(const ArrayView& x, const Visit& visit, const Arrays*... arrays) {
  const std::int64_t stride = detail::pixel_stride(x);
  ChannelTiles tiles;
  tiles.channels = x.shape[1];
  if (tiles.channels == 0) return;
  const std::int64_t images = x.shape[0];
  const std::int64_t pixels = images == 0 ? 0 : x.numel() / images / tiles.channels;
  const bool is_planar = stride == 1 && (tiles.channels == 1 || x.strides[1] != 1);
  const std::int64_t side_by_side = is_planar ? pixels : tiles.channels;
  const bool wide = side_by_side % lanes_of<T> == 0 && (is_aligned(arrays) && ...);
  const std::int64_t lanes = wide ? lanes_of<T> : 1;
  tiles.columns = is_planar ? tiles.channels : tiles.channels / lanes;
  tiles.column_stride = is_planar ? x.strides[1] : lanes;
  tiles.rows_of_image = is_planar ? pixels / lanes : pixels;
  tiles.row_stride = is_planar ? lanes : stride;
  tiles.image_stride = x.strides[0];
  tiles.rows = images * tiles.rows_of_image;
  tiles.is_divided = images > 1 && tiles.image_stride != tiles.rows_of_image * tiles.row_stride;
  tiles.is_wide = tiles.rows > INT32_MAX;
  if (tiles.rows > 0 && !tiles.is_wide)
    tiles.images = Divider(static_cast<std::uint32_t>(tiles.rows_of_image));
  if (!is_planar)
    tiles.width = static_cast<int>(std::min(
        std::bit_ceil(static_cast<std::uint64_t>(tiles.columns)), std::uint64_t{warp_size}));
  tiles.splits = detail::splits_of(tiles);
  tiles.rows_of_block = (tiles.rows + tiles.splits - 1) / tiles.splits;
  const auto channels_of_block = static_cast<unsigned>(is_planar ? 1 : tiles.width * lanes);
  tiles.groups = detail::groups_of(tiles, channels_of_block);
  if (lanes == 1)
    visit.template operator()<1, false>(tiles);
  else if (is_planar)
    visit.template operator()<lanes_of<T>, true>(tiles);
  else
    visit.template operator()<lanes_of<T>, false>(tiles);
}

/// A vector [C] of any floating type, or none.
struct ChannelVector {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride = 0;

  ChannelVector() = default;
  ChannelVector(const ArrayView& view) : data(view.data), dtype(view.dtype) {
    if (!view) return;
    stride = view.strides[0];
    LOCKSTEP_CHECK(is_floating(dtype), Unsupported, "batch_norm: a vector of ", dtype,
                   " on device cuda; it must be of a floating type");
  }
  LOCKSTEP_HD explicit operator bool() const { return data != nullptr; }
  /// @param absent what it is where there is none.
  template <class A>
  __device__ A load(std::int64_t channel, A absent) const {
    if (!data) return absent;
    switch (dtype) {
      case DType::f64: return convert<A>(at<double>(channel));
      case DType::f32: return convert<A>(at<float>(channel));
      case DType::bf16: return convert<A>(at<BFloat16>(channel));
      default: return convert<A>(at<Half>(channel));
    }
  }
  /// Does nothing where there is none.
  template <class A>
  __device__ void store(std::int64_t channel, A value) const {
    if (!data) return;
    switch (dtype) {
      case DType::f64: at<double>(channel) = convert<double>(value); break;
      case DType::f32: at<float>(channel) = convert<float>(value); break;
      case DType::bf16: at<BFloat16>(channel) = convert<BFloat16>(value); break;
      default: at<Half>(channel) = convert<Half>(value);
    }
  }

 private:
  template <class T>
  __device__ T& at(std::int64_t channel) const {
    return static_cast<T*>(data)[channel * stride];
  }
};

/// Sets own[k] to the k-th of the values that `find(channel)` returns for each of the thread's
/// channels: a thread of the block computes those of one. For all threads of a block.
template <int own_channels, class A, std::size_t count, class Find>
__device__ void load_coefficients(Pack<A, own_channels> (&own)[count], const ChannelTiles& tiles,
                                  const Find& find) {
  alignas(16) __shared__ unsigned char storage[count * tile_threads * sizeof(A)];
  A* const shared = reinterpret_cast<A*>(storage);
  const std::int64_t of_block = static_cast<std::int64_t>(blockDim.x) * own_channels;
  const std::int64_t channel = blockIdx.x * of_block + thread_of_block();
  if (thread_of_block() < of_block && channel < tiles.channels) {
    const Pack<A, static_cast<int>(count)> found = find(channel);
    for (std::size_t k = 0; k < count; ++k)
      shared[k * tile_threads + thread_of_block()] = found[static_cast<int>(k)];
  }
  __syncthreads();
  if (tiles.column() >= tiles.columns) return;
  LOCKSTEP_UNROLL
  for (std::size_t k = 0; k < count; ++k) LOCKSTEP_UNROLL
  for (int j = 0; j < own_channels; ++j)
    own[k][j] = shared[k * tile_threads + threadIdx.x * own_channels + static_cast<unsigned>(j)];
}

/// Adds up what every `width`-th thread of a block holds, in a fixed order: the first `width` of
/// them have the sums. For all threads of a block.
template <int count, class Value>
__device__ void reduce_threads(Value (&values)[count], unsigned width) {
  alignas(16) __shared__ unsigned char storage[count * tile_threads * sizeof(Value)];
  Value* const shared = reinterpret_cast<Value*>(storage) + thread_of_block();
  LOCKSTEP_UNROLL
  for (int j = 0; j < count; ++j) shared[j * tile_threads] = values[j];
  for (unsigned half = tile_threads / 2; half >= width; half /= 2) {
    __syncthreads();
    if (thread_of_block() >= half) continue;
    LOCKSTEP_UNROLL
    for (int j = 0; j < count; ++j) {
      values[j] = values[j] + shared[static_cast<unsigned>(j) * tile_threads + half];
      shared[j * tile_threads] = values[j];
    }
  }
}

/// What the blocks of a launch leave for its channels: [splits, C].
template <class Value>
struct ChannelPartials {
  Value* data;
  std::uint32_t* arrivals;  ///< of each tile's groups, and of the tile

  /// The sum of a group's, every `groups`-th of `count`, for the first `width` threads of a block:
  /// a channel each.
  __device__ Value sum(const ChannelTiles& tiles, std::int64_t channel, unsigned width,
                       unsigned group, unsigned groups, unsigned count) const {
    constexpr unsigned at_once = detail::partials_at_once;
    const unsigned first = group + thread_of_block() / width * groups;
    const unsigned step = tile_threads / width * groups;
    Value values[1] = {};
    if (channel < tiles.channels)
      for (unsigned begin = first; begin < count; begin += at_once * step) {
        Value loaded[at_once] = {};
        LOCKSTEP_UNROLL
        for (unsigned k = 0; k < at_once; ++k)
          if (const unsigned split = begin + k * step; split < count)
            loaded[k] = data[split * tiles.channels + channel];
        LOCKSTEP_UNROLL
        for (unsigned k = 0; k < at_once; ++k) values[0] = values[0] + loaded[k];
      }
    reduce_threads(values, width);
    return values[0];
  }

  /// Calls `store(channel, sum of all)` once each of the tile's blocks has left its own: the last
  /// block of a group adds up the group's, and the last of these the groups'. For all threads.
  /// @param width channels of a tile
  template <class Store>
  __device__ void finish(const ChannelTiles& tiles, unsigned width, const Store& store) const {
    const unsigned splits = gridDim.y, groups = tiles.groups, group = blockIdx.y % groups;
    const std::int64_t channel = std::int64_t{blockIdx.x} * width + thread_of_block() % width;
    const bool stores = thread_of_block() < width && channel < tiles.channels;
    std::uint32_t* const own = arrivals + blockIdx.x * (groups == 1 ? 1 : groups + 1);
    if (!comes_last(own[group], (splits - group + groups - 1) / groups)) return;
    Value total = sum(tiles, channel, width, group, groups, splits);
    if (groups > 1) {
      if (stores) data[group * tiles.channels + channel] = total;
      if (!comes_last(own[groups], groups)) return;
      total = sum(tiles, channel, width, 0, 1, groups);
    }
    if (stores) store(channel, total);
  }
};

/// Calls `store(channel, sum)` with what `Pass::Sums` adds up of all that the threads see.
template <class Pass, class Store, int lanes, bool is_planar>
__global__ void __launch_bounds__(tile_threads, tile_blocks)
    channel_sums_kernel(LOCKSTEP_GRID_CONSTANT(ChannelTiles) tiles,
                        LOCKSTEP_GRID_CONSTANT(Pass) pass, LOCKSTEP_GRID_CONSTANT(Store) store,
                        ChannelPartials<typename Pass::Value> partials) {
  constexpr int own = channels_of_thread<lanes, is_planar>;
  using Value = typename Pass::Value;
  typename Pass::template Sums<lanes, is_planar> sums(pass, tiles);
  constexpr int at_once = decltype(sums)::rows_at_once;
  tiles.for_each_row<at_once>([&](const auto& at) { sums.add(at); });
  Value values[own] = {};
  LOCKSTEP_UNROLL
  for (int j = 0; j < lanes; ++j) values[j % own] = values[j % own] + sums.value(j);
  reduce_threads(values, blockDim.x);
  const bool is_alone = gridDim.y == 1;
  if (threadIdx.y == 0 && tiles.column() < tiles.columns) {
    LOCKSTEP_UNROLL
    for (int j = 0; j < own; ++j) {
      const std::int64_t channel = tiles.column() * own + j;
      if (is_alone)
        store(channel, values[j]);
      else
        partials.data[blockIdx.y * tiles.channels + channel] = values[j];
    }
  }
  if (!is_alone) partials.finish(tiles, blockDim.x * own, store);
}

/// Calls `store(channel, sum)` for each channel of arrays like `x` with what `pass` finds there.
template <class T, class Pass, class Store, class... Arrays>
void reduce_channels(StreamRef stream, const ArrayView& x, const Pass& pass, const Store& store,
                     const Arrays*... arrays) {
  using Value = typename Pass::Value;
  with_channel_tiles<T>(
      x,
      [&]<int lanes, bool is_planar>(const ChannelTiles& tiles) {
        const auto partials = static_cast<std::size_t>(tiles.splits * tiles.channels);
        const bool is_split = tiles.splits > 1;
        const Scratch scratch(is_split ? partials * sizeof(Value) : 0, stream);
        std::optional<Arrivals> arrivals;
        if (is_split) arrivals.emplace(stream);
        launch(stream, tiles.grid(), tiles.block(), 0,
               channel_sums_kernel<Pass, Store, lanes, is_planar>, tiles, pass, store,
               ChannelPartials<Value>{static_cast<Value*>(scratch.data()),
                                      is_split ? arrivals->data() : nullptr});
      },
      arrays...);
}

}  // namespace lockstep::cuda_kernels
