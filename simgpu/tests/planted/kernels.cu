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

}  // namespace planted
