// How fast the simulated GPU runs kernels, in millions of CUDA threads a second: without waiting
// (elementwise) and with barriers and shuffles (cooperative). LOCKSTEP_SIM_WATCH=0 leaves out the
// checks of each access.

#include <cuda_runtime.h>

#include "support/measure.hpp"
#include "support/report.hpp"

namespace {

constexpr unsigned block_threads = 256;
constexpr unsigned blocks = 4096;
constexpr unsigned threads = blocks * block_threads;

__global__ void scale(float* out, const float* in, float factor) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = factor * in[i];
}

/// Thread i writes what thread 255 - i read.
__global__ void reverse(float* out, const float* in) {
  __shared__ float row[block_threads];
  const unsigned first = blockIdx.x * blockDim.x;
  row[threadIdx.x] = in[first + threadIdx.x];
  __syncthreads();
  out[first + threadIdx.x] = row[block_threads - 1 - threadIdx.x];
}

/// The sum of a block, as lockstep's BlockGroup makes it: five shuffles, two barriers.
__global__ void sum(float* out, const float* in) {
  __shared__ float partial[block_threads / 32];
  float value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, mask);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (const float part : partial) total += part;
  if (threadIdx.x == 0) out[blockIdx.x] = total;
}

template <class... Parameters, class... Arguments>
void measure(const lockstep::benchmark::Report& report, const char* name,
             void (*kernel)(Parameters...), Arguments... arguments) {
  const cudaLaunchConfig_t config{.gridDim = blocks,
                                  .blockDim = block_threads,
                                  .dynamicSmemBytes = 0,
                                  .stream = nullptr,
                                  .attrs = nullptr,
                                  .numAttrs = 0};
  const auto timing = lockstep::benchmark::measure([&] {
    static_cast<void>(cudaLaunchKernelEx(&config, kernel, arguments...));
    static_cast<void>(cudaDeviceSynchronize());
  });
  report.add({{"case", name}, {"million_threads_per_s", threads / timing.minimum * 1e-6}});
}

}  // namespace

int main(int argc, char** argv) {
  const lockstep::benchmark::Report report("simulated_kernels", argc, argv);
  void* in = nullptr;
  void* out = nullptr;
  if (cudaMalloc(&in, threads * sizeof(float)) != cudaSuccess) return 1;
  if (cudaMalloc(&out, threads * sizeof(float)) != cudaSuccess) return 1;
  if (cudaMemset(in, 0, threads * sizeof(float)) != cudaSuccess) return 1;
  auto* const to = static_cast<float*>(out);
  const auto* const from = static_cast<const float*>(in);
  measure(report, "elementwise", scale, to, from, 2.0f);
  measure(report, "one barrier", reverse, to, from);
  measure(report, "five shuffles, two barriers", sum, to, from);
  static_cast<void>(cudaFree(in));
  static_cast<void>(cudaFree(out));
}
