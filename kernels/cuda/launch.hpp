#pragma once

#include <cstdint>
#include <source_location>
#include <type_traits>

#include "lockstep/runtime/stream.hpp"
#include "runtime/cuda/device_guard.hpp"

/// @file
/// How every kernel is started, and the one way to its dynamic shared memory.

namespace lockstep::cuda_kernels {

inline constexpr int warp_size = 32;

/// A kernel's parameter of that type, which its threads read where the launch has put it. The
/// simulated GPU would copy it for each of them.
#if defined(__CUDACC__)
#define LOCKSTEP_GRID_CONSTANT(...) const __grid_constant__ __VA_ARGS__
#else
#define LOCKSTEP_GRID_CONSTANT(...) const __VA_ARGS__&
#endif

/// Place of the thread within its block of two dimensions. Each call reads it anew: kept over a
/// loop of rows, it may be the one register too many.
__device__ inline unsigned thread_of_block() {
#if defined(__CUDA_ARCH__)
  unsigned x, y;
  asm volatile("mov.u32 %0, %%tid.x; mov.u32 %1, %%tid.y;" : "=r"(x), "=r"(y));
  return y * blockDim.x + x;
#else
  return threadIdx.y * blockDim.x + threadIdx.x;
#endif
}

/// A stream, and the line that queues a kernel on it.
struct LaunchStream {
  StreamRef stream;
  std::source_location where;

  LaunchStream(StreamRef queue, std::source_location line = std::source_location::current())
      : stream(queue), where(line) {}
};

/// Queues a kernel on a stream. Arguments are converted to the kernel's parameter types.
/// @throws CudaError if the launch is refused.
template <class... Parameters, class... Arguments>
void launch(const LaunchStream& on, dim3 grid, dim3 block, std::size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  const CudaDeviceGuard guard(on.stream.device.index);
  const cudaLaunchConfig_t config{.gridDim = grid,
                                  .blockDim = block,
                                  .dynamicSmemBytes = shared_bytes,
                                  .stream = static_cast<cudaStream_t>(on.stream.handle),
                                  .attrs = nullptr,
                                  .numAttrs = 0};
#if !defined(__CUDACC__)
  ::simgpu::set_launch_location(on.where);
#endif
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, static_cast<Arguments&&>(arguments)...);
  if (status != cudaSuccess) [[unlikely]]
    detail::throw_cuda_error("cudaLaunchKernelEx", status);
}

/// Lets launches of a kernel ask for so much dynamic shared memory, which may be more than 48 KiB,
/// and multiprocessors have as much as they can in place of their L1. It stays with the kernel, for
/// all threads and graphs: always to be called with the same bytes, the most of any launch.
/// @throws CudaError if the device has not as much.
template <class... Parameters>
void allow_shared_bytes(StreamRef stream, void (*kernel)(Parameters...), std::size_t bytes) {
  const CudaDeviceGuard guard(stream.device.index);
  const auto set = [&](cudaFuncAttribute attribute, int value) {
    const cudaError_t status = cudaFuncSetAttribute(kernel, attribute, value);
    if (status != cudaSuccess) [[unlikely]]
      detail::throw_cuda_error("cudaFuncSetAttribute", status);
  };
  set(cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  constexpr int percent = 100;
  set(cudaFuncAttributePreferredSharedMemoryCarveout, percent);
}

/// The block's dynamic shared memory, as an array of T.
template <class T>
__device__ T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char lockstep_dynamic_shared[];
  return reinterpret_cast<T*>(lockstep_dynamic_shared);
#else
  return static_cast<T*>(::simgpu::dynamic_shared_memory());
#endif
}

/// Index of the thread in a one-dimensional grid.
__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/// Number of threads of a one-dimensional grid.
__device__ inline std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// Blocks to cover `work` items with a grid-stride loop: enough to fill any present GPU, never more
/// than needed.
inline unsigned grid_for(std::int64_t work, int threads_per_block) {
  constexpr std::int64_t most = 132 * 16;
  const std::int64_t blocks = (work + threads_per_block - 1) / threads_per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

}  // namespace lockstep::cuda_kernels
