#include <cuda_runtime.h>

#include "doubling.hpp"

namespace {

__global__ void twice_kernel(float* data, int count) {
  __shared__ float factor;
  if (threadIdx.x == 0) factor = 2;
  __syncthreads();  // of which compilers may make two
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) data[i] *= factor;
}

}  // namespace

cudaError_t twice(float* data, int count, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(count + 255) / 256;
  config.blockDim = 256;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, twice_kernel, data, count);
}
