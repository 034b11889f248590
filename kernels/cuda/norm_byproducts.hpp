#pragma once

#include "arguments/norm.hpp"
#include "cuda/arrivals.hpp"
#include "cuda/column_sums.hpp"
#include "cuda/kept_rows.hpp"

/// @file
/// What the kernel of a norm's backward does besides (kernels::NormByproducts).

namespace lockstep::cuda_kernels {

/// Counters that sums of one row after another need; the others are those of the summand's tiles.
inline constexpr unsigned row_arrivals = 33;
inline constexpr std::int64_t most_summand_tiles = 64;
static_assert(row_arrivals + most_summand_tiles <= stream_counters);

/// One block reads what many have left: it waits for memory as seldom as registers allow.
inline constexpr unsigned loads_at_once = 16;

/// Writes a sum over rows, or adds it to what is there.
template <class T>
__device__ void store_sum(T* to, AccumulateType<T> value, bool add) {
  *to = convert<T>(add ? convert<AccumulateType<T>>(*to) + value : value);
}

/// An array whose columns all blocks of a launch add up: each takes a share of the rows of one tile
/// of columns, and the last of a tile adds up what the others have left.
template <class T, class Out>
struct Summand {
  const T* in = nullptr;                       ///< [rows, columns]; null: the sums are 0
  const AccumulateType<T>* weights = nullptr;  ///< [rows], or null: 1
  Out* out = nullptr;                          ///< [columns]
  AccumulateType<T>* partial = nullptr;        ///< [shares, columns]
  std::int64_t rows = 0, columns = 0, pitch = 0;
  unsigned tiles = 0, first_arrivals = 0;
  bool accumulate = false;

  /// Columns of a tile: a warp's.
  static constexpr int width = warp_size * lanes_of<T>;
  static std::int64_t tiles_of(std::int64_t columns) { return (columns + width - 1) / width; }
};

/// Arrays side by side, one after another.
template <class T, class Out>
struct Summands {
  Summand<T, Out> parts[3];
  int count = 0;
};

/// @tparam most_warps of a block
/// @param arrivals of the tiles
template <int most_warps, class T, class Out>
__device__ void add_columns(const Summand<T, Out>& p, std::uint32_t* arrivals) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  __shared__ A parts[most_warps][N][warp_size];
  if (!p.in) {
    for (std::int64_t c = threadIdx.x; blockIdx.x == 0 && !p.accumulate && c < p.columns;
         c += blockDim.x)
      p.out[c] = convert<Out>(A(0));
    return;
  }
  const unsigned tile = blockIdx.x % p.tiles, share = blockIdx.x / p.tiles;
  const unsigned shares = (gridDim.x - tile + p.tiles - 1) / p.tiles;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  const std::int64_t column = std::int64_t{tile} * p.width + lane * N;
  const std::int64_t each = (p.rows + shares - 1) / shares, first = share * each;
  const auto last = static_cast<int>(first + each < p.rows ? each : p.rows - first);
  Pack<A, N> sums{};
  if (column < p.columns) {
    const T* const in = p.in + first * p.pitch + column;
    const auto weight = [own = p.weights, first](int row) { return own[first + row]; };
    sums = p.weights ? add_rows<N>(in, p.pitch, warp, last, warps, weight)
                     : add_rows<N>(in, p.pitch, warp, last, warps);
  }
  LOCKSTEP_UNROLL
  for (int j = 0; j < N; ++j) parts[warp][j][lane] = sums[j];
  __syncthreads();
  if (warp == 0 && column < p.columns) {
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j)
      for (int other = 1; other < warps; ++other) sums[j] += parts[other][j][lane];
    A* const to = p.partial + share * p.columns + column;
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; j += lanes_of<A>) {
      Vector<A, lanes_of<A>> stored;
      for (int k = 0; k < lanes_of<A>; ++k) stored.lane[k] = sums[j + k];
      store_vector<lanes_of<A>>(to + j, stored);
    }
  }
  if (!comes_last(arrivals[p.first_arrivals + tile], shares)) return;
  constexpr int lanes = lanes_of<A>;
  for (int c = static_cast<int>(threadIdx.x) * lanes; c < p.width; c += blockDim.x * lanes) {
    const std::int64_t at = std::int64_t{tile} * p.width + c;
    if (at >= p.columns) break;
    const Pack<A, lanes> total =
        add_rows<lanes>(p.partial + at, p.columns, 0, static_cast<int>(shares), 1);
    for (int j = 0; j < lanes; ++j) store_sum(p.out + at + j, total[j], p.accumulate);
  }
}

}  // namespace lockstep::cuda_kernels
