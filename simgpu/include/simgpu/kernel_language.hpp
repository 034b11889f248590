#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "simgpu/atomics.hpp"
#include "simgpu/intrinsics.hpp"
#include "simgpu/warp.hpp"
#include "vector_types.h"

/// @file
/// CUDA C++ for a plain C++ compiler: its keywords, built-in variables and block barriers. Kernels
/// are ordinary functions; the engine in simgpu/src/kernels calls them once for each CUDA thread
/// and sets what the built-in variables hold. simgpu/compiler translates what a C++ compiler cannot
/// read: launches by <<<>>>, `extern __shared__`, and variables of the device.

#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
#ifndef SIMGPU_TRANSLATES
#define __global__
/// Variables stay the host's where the source is not translated.
#define __device__
#define __constant__
#define __managed__
/// The blocks of a launch run one after the other on one OS thread, so that one instance serves;
/// memory of that thread's own is how the engine tells shared variables from others.
#define __shared__ static thread_local
#endif

/// Constants for the thread that reads them: the engine changes the memory behind them when another
/// thread goes on.
extern const uint3 threadIdx, blockIdx;
extern const uint3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace simgpu {

/// Start of the block's dynamic shared memory.
void* dynamic_shared_memory();

/// What the threads of a block learn at a barrier.
struct Ballot {
  int count;  ///< threads whose predicate was not 0
  bool all;
};
/// Waits until every thread of the block has come here. A finding if some never do.
Ballot block_barrier(bool predicate);
/// Other blocks see what came before it, if they see what comes after it.
void device_fence();
/// Ends the kernel with cudaErrorIllegalInstruction.
[[noreturn]] void trap();

}  // namespace simgpu

inline void __syncthreads() { ::simgpu::block_barrier(false); }
inline int __syncthreads_count(int predicate) {
  return ::simgpu::block_barrier(predicate != 0).count;
}
inline int __syncthreads_and(int predicate) { return ::simgpu::block_barrier(predicate != 0).all; }
inline int __syncthreads_or(int predicate) {
  return ::simgpu::block_barrier(predicate != 0).count != 0;
}

/// One OS thread runs all CUDA threads, in program order: fences matter to the checks alone. That
/// of a block orders nothing that they look at.
inline void __threadfence() { ::simgpu::device_fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { ::simgpu::device_fence(); }

/// Threads that wait by reads let others run without it.
inline void __nanosleep(unsigned) {}

[[noreturn]] inline void __trap() { ::simgpu::trap(); }
