#include "cuda/group.hpp"
#include "cuda/launch.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"
#include "planted/switch.hpp"

/// @file
/// Kernels with a fault each.

namespace planted {
namespace {

using namespace lockstep;
using cuda_kernels::launch;

constexpr int threads = 128;
const TensorOptions f32{.dtype = DType::f32, .device = cuda(0)};

StreamRef stream() { return current_stream(cuda(0)); }

/// Sums a block's values by halves; `synchronized`: with a barrier between the steps.
__global__ void sum_by_halves_kernel(const float* values, float* sum, bool synchronized) {
  __shared__ float parts[threads];
  parts[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    if (synchronized) __syncthreads();
  }
  if (threadIdx.x == 0) *sum = parts[0];
}

/// Each value minus its right neighbour's, through a tile; the last has none unless `halo` is
/// there.
__global__ void difference_kernel(const float* values, float* differences, int halo) {
  __shared__ float tile[threads + 1];
  float* const shifted = tile + 1 - halo;
  shifted[threadIdx.x] = values[threadIdx.x];
  if (threadIdx.x == 0) shifted[threads] = 0.0f;
  __syncthreads();
  differences[threadIdx.x] = shifted[threadIdx.x] - shifted[threadIdx.x + 1];
}

/// Scales four values a thread; what is left over by the first threads, unless the tail is missed.
__global__ void scale_by_fours_kernel(const float* values, float* scaled, int count, int tail) {
  const int first = static_cast<int>(cuda_kernels::global_thread()) * 4;
  if (first + 4 <= count)
    for (int i = 0; i < 4; ++i) scaled[first + i] = 2.0f * values[first + i];
  const int thread = static_cast<int>(cuda_kernels::global_thread());
  if (thread < tail) scaled[count - tail + thread] = 2.0f * values[count - tail + thread];
}

/// Counts values above a limit, over all blocks.
__global__ void count_above_kernel(const float* values, float limit, int* count, bool atomically) {
  if (values[cuda_kernels::global_thread()] <= limit) return;
  if (atomically)
    atomicAdd(count, 1);
  else
    ++*count;
}

/// The mean of all values: each block leaves its sum, the last one adds them.
__global__ void mean_kernel(const float* values, float* partials, unsigned* arrivals, float* mean,
                            bool fenced) {
  __shared__ bool is_last;
  const float sum =
      cuda_kernels::BlockGroup{}.reduce(values[cuda_kernels::global_thread()], cuda_kernels::Sum{});
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
    if (fenced) __threadfence();
    is_last = atomicAdd(arrivals, 1u) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  __threadfence();
  float total = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) total += partials[block];
  *mean = total / static_cast<float>(gridDim.x * blockDim.x);
}

}  // namespace

void missing_syncthreads() {
  const Tensor values = ones({threads}, f32), sum = empty({1}, f32);
  launch(stream(), 1, threads, 0, sum_by_halves_kernel, values.data<float>(), sum.data<float>(),
         !is_planted("missing-syncthreads"));
  synchronize(stream());
}

void shared_index_out_of_range() {
  const Tensor values = ones({threads}, f32), differences = empty({threads}, f32);
  launch(stream(), 1, threads, 0, difference_kernel, values.data<float>(),
         differences.data<float>(), is_planted("shared-index-out-of-range") ? 0 : 1);
  synchronize(stream());
}

void kernel_misses_tail() {
  constexpr int count = 1022;
  const Tensor values = ones({count}, f32), scaled = empty({count}, f32);
  launch(stream(), cuda_kernels::grid_for(count / 4, threads), threads, 0, scale_by_fours_kernel,
         values.data<float>(), scaled.data<float>(), count,
         is_planted("kernel-misses-tail") ? 0 : count % 4);
  scaled.to_vector<float>();
}

void plain_add_of_blocks() {
  constexpr unsigned blocks = 4;
  const Tensor values = ones({blocks * threads}, f32);
  const Tensor count = zeros({1}, {.dtype = DType::i32, .device = cuda(0)});
  launch(stream(), blocks, threads, 0, count_above_kernel, values.data<float>(), 0.5f,
         count.data<std::int32_t>(), !is_planted("plain-add-of-blocks"));
  synchronize(stream());
}

void missing_threadfence() {
  constexpr unsigned blocks = 4;
  const Tensor values = ones({blocks * threads}, f32);
  const Tensor partials = empty({blocks}, f32), mean = empty({1}, f32);
  const Tensor arrivals = zeros({1}, {.dtype = DType::i32, .device = cuda(0)});
  launch(stream(), blocks, threads, 0, mean_kernel, values.data<float>(), partials.data<float>(),
         reinterpret_cast<unsigned*>(arrivals.data<std::int32_t>()), mean.data<float>(),
         !is_planted("missing-threadfence"));
  synchronize(stream());
}

}  // namespace planted
