#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"
#include "simgpu/launch.hpp"

/// @file
/// The forms that the runtime's functions have in C++: typed pointers, kernels and variables.

namespace simgpu {

inline cudaMemLocation location_of(int device) {
  return device == cudaCpuDeviceId ? cudaMemLocation{cudaMemLocationTypeHost, 0}
                                   : cudaMemLocation{cudaMemLocationTypeDevice, device};
}

}  // namespace simgpu

template <class T, class = std::enable_if_t<!std::is_void_v<T>>>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(data), bytes);
}
template <class T, class = std::enable_if_t<!std::is_void_v<T>>>
cudaError_t cudaMallocAsync(T** data, std::size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(data), bytes, stream);
}
template <class T>
cudaError_t cudaMallocHost(T** data, std::size_t bytes, unsigned flags = 0) {
  return cudaHostAlloc(reinterpret_cast<void**>(data), bytes, flags);
}
template <class T, class = std::enable_if_t<!std::is_void_v<T>>>
cudaError_t cudaHostAlloc(T** data, std::size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(data), bytes, flags);
}
template <class T, class = std::enable_if_t<!std::is_void_v<T>>>
cudaError_t cudaMallocManaged(T** data, std::size_t bytes, unsigned flags = cudaMemAttachGlobal) {
  return cudaMallocManaged(reinterpret_cast<void**>(data), bytes, flags);
}
inline cudaError_t cudaMallocManaged(void** data, std::size_t bytes) {
  return cudaMallocManaged(data, bytes, cudaMemAttachGlobal);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
  return cudaEventCreateWithFlags(event, flags);
}

// As before CUDA 13, which names places by a structure.
inline cudaError_t cudaMemAdvise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                                 int device) {
  return cudaMemAdvise(data, bytes, advice, simgpu::location_of(device));
}
inline cudaError_t cudaMemPrefetchAsync(const void* data, std::size_t bytes, int device,
                                        cudaStream_t stream = nullptr) {
  return cudaMemPrefetchAsync(data, bytes, simgpu::location_of(device), 0, stream);
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          void (*kernel)(Parameters...),
                                                          int block_size,
                                                          std::size_t dynamic_shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), block_size, dynamic_shared_bytes);
}

/// The block size with which most threads are resident, and how many such blocks the device holds.
template <class... Parameters>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, void (*kernel)(Parameters...),
                                               std::size_t dynamic_shared_bytes = 0,
                                               int most_threads = 0) {
  int best = 0, multiprocessors = 0, device = 0;
  const int most = most_threads > 0 ? std::min(most_threads, 1024) : 1024;
  for (int threads = most; threads >= 32; threads -= 32) {
    int blocks = 0;
    const cudaError_t status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kernel, threads, dynamic_shared_bytes);
    if (status != cudaSuccess) return status;
    if (blocks * threads <= best) continue;
    best = blocks * threads;
    *block = threads;
    *grid = blocks;
  }
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  *grid *= multiprocessors;
  return status;
}

namespace simgpu {

template <class... Parameters, std::size_t... I>
cudaError_t launch_with(const cudaLaunchConfig_t& configuration, void (*kernel)(Parameters...),
                        void** arguments, std::index_sequence<I...>) {
  return cudaLaunchKernelEx(&configuration, kernel,
                            *static_cast<remove_cvref_t<Parameters>*>(arguments[I])...);
}

}  // namespace simgpu

/// Queues a kernel with the arguments that the pointers point to.
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  const cudaLaunchConfig_t configuration{grid, block, shared_bytes, stream, nullptr, 0};
  return simgpu::launch_with(configuration, kernel, arguments,
                             std::index_sequence_for<Parameters...>());
}
