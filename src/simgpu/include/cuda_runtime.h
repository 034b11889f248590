#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "simgpu/kernel_language.hpp"

/// @file
/// Stands in for the toolkit's header of the same name when .cu files are compiled by a plain C++
/// compiler: the declarations that lockstep's kernels use, with the signatures of the original.

enum cudaError_t { cudaSuccess = 0 };

struct CUstream_st;
using cudaStream_t = CUstream_st*;

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t status);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);

namespace simgpu {

/// Queues a launch; `thread` runs one CUDA thread.
cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, std::function<void()> thread);

}  // namespace simgpu

template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Actual&&... arguments) {
  // Arguments are converted and copied at launch, as the real launch does.
  const auto enqueue = [config, kernel](Expected... copies) {
    return ::simgpu::enqueue_launch(*config, [=] { kernel(copies...); });
  };
  return enqueue(std::forward<Actual>(arguments)...);
}
