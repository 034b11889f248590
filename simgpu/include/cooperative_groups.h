#pragma once

#include "simgpu/kernel_language.hpp"

/// @file
/// Stands in for the toolkit's header of the same name: the block, its tiles of up to a warp, and
/// the lanes that have not left. No grids, clusters or tiles of several warps.

namespace cooperative_groups {

/// The threads of the block.
class thread_block {
 public:
  static void sync() { __syncthreads(); }
  static unsigned thread_rank() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return dim3(blockIdx); }
  static dim3 thread_index() { return dim3(threadIdx); }
  static dim3 dim_threads() { return dim3(blockDim); }
};

inline thread_block this_thread_block() { return {}; }

/// Neighbouring lanes of a warp.
template <unsigned Size, class Parent = void>
class thread_block_tile {
  static_assert(Size != 0 && Size <= 32 && (Size & (Size - 1)) == 0,
                "tiles of 1, 2, 4, 8, 16 or 32 threads are there");

 public:
  thread_block_tile() = default;
  template <class Other>
  thread_block_tile(const thread_block_tile<Size, Other>&) {}

  static unsigned thread_rank() { return thread_block::thread_rank() % Size; }
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
  static unsigned meta_group_size() { return (thread_block::num_threads() + Size - 1) / Size; }

  static void sync() { __syncwarp(mask()); }
  template <class T>
  T shfl(T value, int rank) const {
    return __shfl_sync(mask(), value, rank, Size);
  }
  template <class T>
  T shfl_up(T value, unsigned delta) const {
    return __shfl_up_sync(mask(), value, delta, Size);
  }
  template <class T>
  T shfl_down(T value, unsigned delta) const {
    return __shfl_down_sync(mask(), value, delta, Size);
  }
  template <class T>
  T shfl_xor(T value, unsigned lanes) const {
    return __shfl_xor_sync(mask(), value, static_cast<int>(lanes), Size);
  }
  static int any(int predicate) { return __any_sync(mask(), predicate); }
  static int all(int predicate) { return __all_sync(mask(), predicate); }
  static unsigned ballot(int predicate) { return __ballot_sync(mask(), predicate) >> first_lane(); }

 private:
  static unsigned first_lane() { return thread_block::thread_rank() % 32 / Size * Size; }
  static unsigned mask() { return (Size == 32 ? ~0u : (1u << Size % 32) - 1) << first_lane(); }
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}

template <class Group>
void sync(const Group& group) {
  group.sync();
}

}  // namespace cooperative_groups
