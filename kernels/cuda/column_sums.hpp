#pragma once

#include <algorithm>

#include "cuda/row_access.hpp"
#include "cuda/scratch.hpp"

/// @file
/// Sums down the columns of rows that allow wide loads. Each lane of a warp takes 16 bytes of a
/// row, of many rows at once: what is under way, not what is added, sets the speed. Where the
/// columns are few, blocks have a share of the rows each, and the same kernel adds up what they
/// leave.

namespace lockstep::cuda_kernels {

inline constexpr int column_sums_threads = 256, column_sums_warps = column_sums_threads / warp_size;
/// Rows that a thread waits for at a time: with three blocks of a multiprocessor 96 KiB.
inline constexpr int rows_at_once = 8;
inline constexpr std::int64_t column_sums_blocks = 3;

/// Which columns of which rows are added, and where the sums go.
template <class T, class Out>
struct ColumnSums {
  using A = AccumulateType<T>;
  Out* out;            ///< [gridDim.y, columns]
  const T* in;         ///< [rows, columns]
  std::int64_t pitch;  ///< from one row to the next
  std::int64_t rows, columns;
  A divisor;
  bool accumulate;

  /// Columns of a warp.
  static constexpr int tile = warp_size * lanes_of<T>;
  std::int64_t tiles() const { return (columns + tile - 1) / tile; }

  template <int N>
  __device__ void store(std::int64_t column, const Pack<A, N>& sums) const {
    constexpr int width = N < lanes_of<Out> ? N : lanes_of<Out>;
    Out* const to = out + blockIdx.y * columns + column;
    LOCKSTEP_UNROLL
    for (int first = 0; first < N; first += width) {
      Vector<Out, width> stored;
      if (accumulate) stored = load_vector<width>(to + first);
      LOCKSTEP_UNROLL
      for (int j = 0; j < width; ++j) {
        const A sum = sums[first + j] / divisor;
        stored.lane[j] = convert<Out>(accumulate ? convert<A>(stored.lane[j]) + sum : sum);
      }
      store_vector<width>(to + first, stored);
    }
  }
};

/// Rows that count alike.
template <class A>
struct EqualWeights {
  __device__ A operator()(int) const { return A(1); }
};

/// The sums of N neighbouring columns over every `step`-th row from `row` on before `last`.
/// @param weight of a row
template <int N, class T, class Weight = EqualWeights<AccumulateType<T>>>
__device__ Pack<AccumulateType<T>, N> add_rows(const T* in, std::int64_t pitch, int row, int last,
                                               int step, const Weight& weight = {}) {
  using A = AccumulateType<T>;
  Pack<A, N> sums{};
  const auto add = [&](int from, auto all) {
    Vector<T, N> loaded[rows_at_once];
    LOCKSTEP_UNROLL
    for (int k = 0; k < rows_at_once; ++k) {
      const int at = from + k * step;
      loaded[k] = load_vector<N>(in + (all || at < last ? at : from) * pitch);
    }
    LOCKSTEP_UNROLL
    for (int k = 0; k < rows_at_once; ++k) {
      const Pack<A, N> terms = unpack(loaded[k]);
      const bool counts = all || from + k * step < last;
      const A factor = counts ? weight(from + k * step) : A(0);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j) sums[j] += counts ? terms[j] * factor : A(0);
    }
  };
  for (; row + (rows_at_once - 1) * step < last; row += step * rows_at_once)
    add(row, std::true_type{});
  if (row < last) add(row, std::false_type{});
  return sums;
}

/// @tparam height warps that share the rows of a tile of columns: one, or all of the block
template <int height, class T, class Out>
__global__ void __launch_bounds__(column_sums_threads, column_sums_blocks)
    column_sums_kernel(ColumnSums<T, Out> p) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>, tiles_of_block = column_sums_warps / height;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t tile = blockIdx.x * tiles_of_block + warp / height;
  const std::int64_t column = tile * p.tile + lane * N;
  const std::int64_t share = (p.rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * share;
  const auto last = static_cast<int>(first + share < p.rows ? share : p.rows - first);
  const T* const in = p.in + first * p.pitch + column;
  const bool live = column < p.columns;
  Pack<A, N> sums{};
  if (live) sums = add_rows<N>(in, p.pitch, warp % height, last, height);
  if constexpr (height > 1) {
    __shared__ A parts[height][N][warp_size];
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) parts[warp][j][lane] = sums[j];
    __syncthreads();
    if (warp != 0) return;
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j)
      for (int other = 1; other < height; ++other) sums[j] += parts[other][j][lane];
  }
  if (live) p.store(column, sums);
}

/// Queues the kernel; `splits` blocks share the rows of a tile.
template <class T, class Out>
void launch_column_sums(StreamRef stream, const ColumnSums<T, Out>& sums, unsigned splits,
                        bool tall) {
  const std::int64_t tiles = sums.tiles(),
                     wide = (tiles + column_sums_warps - 1) / column_sums_warps;
  launch(stream, dim3(static_cast<unsigned>(tall ? tiles : wide), splits), column_sums_threads, 0,
         tall ? column_sums_kernel<column_sums_warps, T, Out> : column_sums_kernel<1, T, Out>,
         sums);
}

/// Into how many shares the rows fall: as many as the device runs blocks of at once, but for those
/// that would read little more than the sums that they leave.
inline unsigned column_splits(std::int64_t multiprocessors, std::int64_t tiles, std::int64_t rows) {
  constexpr std::int64_t least_rows = 2 * column_sums_warps * rows_at_once;
  const std::int64_t wanted = multiprocessors * column_sums_blocks / tiles;
  const std::int64_t splits =
      std::clamp<std::int64_t>(rows / least_rows, 1, std::max<std::int64_t>(wanted, 1));
  const std::int64_t share = (rows + splits - 1) / splits;
  return static_cast<unsigned>((rows + share - 1) / share);
}

/// Adds up the columns. Arrays and rows begin at multiples of 16 bytes.
template <class T, class Out>
void sum_wide_columns(StreamRef stream, std::int64_t multiprocessors, ColumnSums<T, Out> sums) {
  using A = AccumulateType<T>;
  const std::int64_t tiles = sums.tiles();
  // With fewer rows than its warps read at once a block would be idle for the most part.
  const bool tall = sums.rows > rows_at_once && tiles < multiprocessors * column_sums_warps;
  const unsigned splits = tall ? column_splits(multiprocessors, tiles, sums.rows) : 1;
  if (splits == 1) return launch_column_sums(stream, sums, 1, tall);
  const Scratch scratch(sizeof(A) * splits * static_cast<std::size_t>(sums.columns), stream);
  auto* const parts = static_cast<A*>(scratch.data());
  launch_column_sums<T, A>(
      stream, {parts, sums.in, sums.pitch, sums.rows, sums.columns, A(1), false}, splits, true);
  launch_column_sums<A, Out>(
      stream, {sums.out, parts, sums.columns, splits, sums.columns, sums.divisor, sums.accumulate},
      1, true);
}

}  // namespace lockstep::cuda_kernels
