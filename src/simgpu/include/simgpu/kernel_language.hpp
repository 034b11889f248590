#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "vector_types.h"

/// @file
/// The part of CUDA C++ that lockstep's kernels use, for a plain C++ compiler. Each CUDA thread is
/// a fiber; the functions of namespace simgpu belong to the engine that runs them.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__ __restrict
/// The blocks of a launch run one after the other on an OS thread, so that one instance serves.
#define __shared__ static thread_local

namespace simgpu {

/// Start of the block's dynamic shared memory.
void* dynamic_shared_memory();
/// Runs the block's other threads until all have come to this barrier.
void block_barrier();
void warp_barrier(unsigned mask);
/// The word that lane (own ^ lane_mask) passed to its matching call.
std::uint32_t exchange_xor(unsigned mask, std::uint32_t word, int lane_mask);

}  // namespace simgpu

/// Where the running CUDA thread stands in its launch: set at every switch of fibers.
extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { ::simgpu::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { ::simgpu::warp_barrier(mask); }

inline std::uint32_t __shfl_xor_sync(unsigned mask, std::uint32_t word, int lane_mask) {
  return ::simgpu::exchange_xor(mask, word, lane_mask);
}

/// Fibers switch at barriers and shuffles only: a plain read-modify-write is atomic among them.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = old + value;
  return old;
}
