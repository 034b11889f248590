#pragma once

#include "cuda/launch.hpp"
#include "cuda/vector.hpp"

/// @file
/// The groups of threads that share a row: a warp or a block. `reduce` combines one value of each
/// thread in a fixed order and returns the result to all of them.

namespace lockstep::cuda_kernels {

/// The value that lane (own ^ mask) of the warp holds.
template <class T>
__device__ T shuffle_xor(const T& value, int mask) {
  static_assert(sizeof(T) % 4 == 0);
  struct Words {
    std::uint32_t word[sizeof(T) / 4];
  };
  auto words = std::bit_cast<Words>(value);
  for (auto& word : words.word) word = __shfl_xor_sync(0xFFFFFFFFu, word, mask);
  return std::bit_cast<T>(words);
}

template <class T, class Op>
__device__ T reduce_warp(T value, Op op) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  return value;
}

/// 32 threads.
struct WarpGroup {
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % warp_size; }
  __device__ int size() const { return warp_size; }
  __device__ void sync() const { __syncwarp(); }
  template <class T, class Op>
  __device__ T reduce(T value, Op op) const {
    return reduce_warp(value, op);
  }
};

/// All threads of a one-dimensional block: a multiple of 32, at most 1024.
struct BlockGroup {
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  template <class T, class Op>
  __device__ T reduce(T value, Op op) const {
    alignas(16) __shared__ unsigned char storage[warp_size * sizeof(T)];
    T* const partial = reinterpret_cast<T*>(storage);
    value = reduce_warp(value, op);
    __syncthreads();  // the former reduction's readers are done
    if (rank() % warp_size == 0) partial[rank() / warp_size] = value;
    __syncthreads();
    T total = partial[0];
    for (int warp = 1; warp < size() / warp_size; ++warp) total = op(total, partial[warp]);
    return total;
  }
};

/// The groups as the row algorithms of functional/ want them: with the number of neighbouring
/// elements that a thread moves at once.
template <class Group, int lanes>
struct WideGroup : Group {
  static constexpr int width = lanes;
};

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// Rows of a launch: which row a group takes, and how many groups there are.
template <class Group>
__device__ std::int64_t first_row() {
  if constexpr (std::is_base_of_v<WarpGroup, Group>)
    return global_thread() / warp_size;
  else
    return blockIdx.x;
}
template <class Group>
__device__ std::int64_t row_step() {
  if constexpr (std::is_base_of_v<WarpGroup, Group>)
    return grid_threads() / warp_size;
  else
    return gridDim.x;
}

inline constexpr int row_threads = 256;
/// Longer rows take a block.
inline constexpr std::int64_t most_columns_of_warp = 1024;

/// Queues a row kernel: a warp a row for short rows, else a block. `warp` and `block` are the same
/// kernel for the two groups.
template <class Kernel, class... Arguments>
void launch_rows(StreamRef stream, std::int64_t rows, std::int64_t columns, Kernel warp,
                 Kernel block, Arguments&&... arguments) {
  if (rows == 0) return;
  const bool short_rows = columns <= most_columns_of_warp;
  const unsigned grid = short_rows ? grid_for(rows * warp_size, row_threads)
                                   : static_cast<unsigned>(rows < 65535 ? rows : 65535);
  launch(stream, grid, row_threads, 0, short_rows ? warp : block, rows, columns,
         static_cast<Arguments&&>(arguments)...);
}

}  // namespace lockstep::cuda_kernels
