#pragma once

#include "cuda/columns.hpp"
#include "cuda/kept_rows.hpp"
#include "cuda/norm_byproducts.hpp"
#include "functional/norm.hpp"

/// @file
/// How blocks of a norm's backward add up over rows: each leaves its sums, and the last ones to do
/// so add those up.

namespace lockstep::cuda_kernels {

using functional::NormSums;

/// Sums over the rows that one block took of what they add to dweight (product) and dbias (plain):
/// [blocks, columns] each.
template <class A>
struct PartialSums {
  A* plain;  // null for RMS norm
  A* product;
  std::int64_t columns;
  __device__ NormSums<A> operator()(std::int64_t block, std::int64_t column) const {
    const std::int64_t at = block * columns + column;
    return {plain ? plain[at] : A(0), product[at]};
  }
  /// `width` of them from a column on, which is a multiple of it.
  template <int width>
  __device__ Pack<NormSums<A>, width> pack(std::int64_t block, std::int64_t column) const {
    const std::int64_t at = block * columns + column;
    const auto products = load_vector<width>(product + at);
    Vector<A, width> plains{};
    if (plain) plains = load_vector<width>(plain + at);
    Pack<NormSums<A>, width> sums;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) sums[j] = {plains.lane[j], products.lane[j]};
    return sums;
  }
  template <int width>
  __device__ void put(std::int64_t block, std::int64_t column,
                      const Pack<NormSums<A>, width>& sums) const {
    const std::int64_t at = block * columns + column;
    Vector<A, width> plains, products;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) {
      plains.lane[j] = sums[j].plain;
      products.lane[j] = sums[j].product;
    }
    store_vector<width>(product + at, products);
    if (plain) store_vector<width>(plain + at, plains);
  }
};

/// Adds up what every `step`-th block from `first` on has left, and calls `store(column, sums)`
/// with a pack of columns.
template <class A, class Store>
__device__ void add_blocks(const PartialSums<A>& partial, unsigned first, unsigned step,
                           unsigned last, const Store& store) {
  constexpr int width = lanes_of<A>;
  for (std::int64_t column = std::int64_t{threadIdx.x} * width; column < partial.columns;
       column += blockDim.x * width) {
    Pack<NormSums<A>, width> sums{};
    for (unsigned begin = first; begin < last; begin += loads_at_once * step) {
      Pack<NormSums<A>, width> own[loads_at_once]{};
      LOCKSTEP_UNROLL
      for (unsigned k = 0; k < loads_at_once; ++k)
        if (begin + k * step < last)
          own[k] = partial.template pack<width>(begin + k * step, column);
      LOCKSTEP_UNROLL
      for (const auto& each : own)
        for (int j = 0; j < width; ++j) sums[j] = sums[j] + each[j];
    }
    store(column, sums);
  }
}

/// What sum_columns does, in the same order, by the last blocks to leave their sums: the last of
/// those whose rows one of its threads would add, and of these the last.
template <class A, class... Sums>
__device__ void finish_sums(std::uint32_t* arrivals, const Sums&... all) {
  static_assert(final_height + 1 == row_arrivals);
  constexpr int width = lanes_of<A>;
  const unsigned blocks = gridDim.x, own = blockIdx.x % final_height;
  const unsigned groups = blocks < final_height ? blocks : final_height;
  if (!comes_last(arrivals[own], (blocks - own + final_height - 1) / final_height)) return;
  const auto join = [&](const PartialSums<A>& partial) {
    add_blocks(partial, own, final_height, blocks, [&](std::int64_t column, const auto& sums) {
      partial.template put<width>(own, column, sums);
    });
  };
  (join(all.partial), ...);
  if (!comes_last(arrivals[final_height], groups)) return;
  const auto finish = [&](const PartialSums<A>& partial, const auto& store) {
    add_blocks(partial, 0, 1, groups, [&](std::int64_t column, const auto& sums) {
      LOCKSTEP_UNROLL
      for (int j = 0; j < width; ++j) store(column + j, sums[j]);
    });
  };
  (finish(all.partial, all.store), ...);
}

/// Sums that blocks leave, and where their sum goes.
template <class A, class Store>
struct FinishedSums {
  PartialSums<A> partial;
  Store store;
};

/// Writes a block's sums of the columns from `first` on that its warps have one pack each of; its
/// warps' are added up in their order.
template <int width, class A>
__device__ void leave_sums(const WideGroup<WarpGroup, width>& group, const Pack<A, width>& sums,
                           A* out, std::int64_t first, std::int64_t columns) {
  // Lane by lane, with gaps: neither writing nor reading has two lanes in one bank.
  constexpr int pitch = warp_size + warp_size / width, warps = kept_warps_threads / warp_size;
  __shared__ A tile[warps][width * pitch];
  __syncthreads();  // the former pack's readers are done
  LOCKSTEP_UNROLL
  for (int j = 0; j < width; ++j) tile[threadIdx.x / warp_size][j * pitch + group.rank()] = sums[j];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < warp_size * width; c += kept_warps_threads) {
    if (first + c >= columns) break;
    const int at = c % width * pitch + c / width;
    A total = tile[0][at];
    for (int warp = 1; warp < warps; ++warp) total += tile[warp][at];
    out[first + c] = total;
  }
}

/// The same for a block that is one group.
template <int width, class A>
__device__ void leave_sums(const WideGroup<BlockGroup, width>& group, const Pack<A, width>& sums,
                           A* out, std::int64_t first, std::int64_t columns) {
  const std::int64_t at = first + static_cast<std::int64_t>(group.rank()) * width;
  if (at >= columns) return;
  LOCKSTEP_UNROLL
  for (int j = 0; j < width; j += lanes_of<A>) {
    Vector<A, lanes_of<A>> stored;
    for (int lane = 0; lane < lanes_of<A>; ++lane) stored.lane[lane] = sums[j + lane];
    store_vector<lanes_of<A>>(out + at + j, stored);
  }
}

}  // namespace lockstep::cuda_kernels
