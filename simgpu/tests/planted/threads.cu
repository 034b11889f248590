#include "cuda/group.hpp"
#include "cuda/launch.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"
#include "planted/switch.hpp"

/// @file
/// Kernels whose threads do not meet, or do so in the wrong place, and kernels that go where they
/// may not.

namespace planted {
namespace {

using namespace lockstep;
using cuda_kernels::launch;

constexpr unsigned blocks = 4, threads = 128;
const TensorOptions f32{.dtype = DType::f32, .device = cuda(0)};
const TensorOptions i32{.dtype = DType::i32, .device = cuda(0)};

StreamRef stream() { return current_stream(cuda(0)); }

/// Adds to each value the square of its right neighbour.
__global__ void add_neighbours_kernel(const float* values, float* squares, float* sums,
                                      bool synchronized) {
  squares[threadIdx.x] = values[threadIdx.x] * values[threadIdx.x];
  if (synchronized) __syncthreads();
  sums[threadIdx.x] = values[threadIdx.x] + squares[(threadIdx.x + 1) % blockDim.x];
}

/// Counts values that are positive, over all blocks.
__global__ void count_positive_kernel(const float* values, int* count, bool over_blocks) {
  if (values[cuda_kernels::global_thread()] <= 0) return;
  if (over_blocks)
    atomicAdd(count, 1);
  else
    atomicAdd_block(count, 1);
}

/// Marks the threads before `first`, and then all; the barrier is each branch's own.
__global__ void mark_in_turns_kernel(float* marks, unsigned first) {
  if (threadIdx.x < first) {
    __syncthreads();
    marks[threadIdx.x] = 1;
  } else {
    marks[threadIdx.x] = 2;
    __syncthreads();
  }
}

/// Blocks wait for each other: each adds itself, and looks until all have come.
__global__ void meet_kernel(unsigned* arrived, unsigned expected) {
  if (threadIdx.x != 0) return;
  __threadfence();
  atomicAdd(arrived, 1u);
  while (*static_cast<volatile unsigned*>(arrived) < expected) {
  }
}

/// Copies four values a thread, as a vector.
__global__ void copy_vectors_kernel(const float* from, float* to) {
  const auto i = cuda_kernels::global_thread();
  reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(from)[i];
}

/// Copies a value a thread.
__global__ void copy_values_kernel(const float* from, float* to) {
  to[threadIdx.x] = from[threadIdx.x];
}

/// The largest sum of weights on a way down a binary tree, whose leaves have no children (0).
__device__ float heaviest_below(const float* weights, const int* children, int node) {
  const int left = children[2 * node], right = children[2 * node + 1];
  if (left == 0) return weights[node];
  return weights[node] +
         fmaxf(heaviest_below(weights, children, left), heaviest_below(weights, children, right));
}

__global__ void heaviest_path_kernel(const float* weights, const int* children, float* heaviest) {
  heaviest[threadIdx.x] = heaviest_below(weights, children, 1);
}

}  // namespace

void neighbour_without_barrier() {
  const Tensor values = ones({threads}, f32);
  const Tensor squares = zeros({threads}, f32), sums = empty({threads}, f32);
  launch(stream(), 1, threads, 0, add_neighbours_kernel, values.data<float>(),
         squares.data<float>(), sums.data<float>(), !is_planted("neighbour-without-barrier"));
  synchronize(stream());
}

void block_atomic_of_blocks() {
  const Tensor values = ones({blocks * threads}, f32), count = zeros({1}, i32);
  launch(stream(), blocks, threads, 0, count_positive_kernel, values.data<float>(),
         count.data<std::int32_t>(), !is_planted("block-atomic-of-blocks"));
  synchronize(stream());
}

void two_barriers() {
  const Tensor marks = empty({threads}, f32);
  launch(stream(), 1, threads, 0, mark_in_turns_kernel, marks.data<float>(),
         is_planted("two-barriers") ? threads / 2 : threads);
  synchronize(stream());
}

void wait_without_end() {
  const Tensor arrived = zeros({1}, i32);
  name_memory(arrived.data_ptr(), arrived.nbytes(), "arrivals");
  launch(stream(), blocks, threads, 0, meet_kernel,
         reinterpret_cast<unsigned*>(arrived.data<std::int32_t>()),
         is_planted("wait-without-end") ? blocks + 1 : blocks);
  synchronize(stream());
}

void misaligned_vector() {
  const Tensor values = ones({4 * threads + 4}, f32), copies = empty({4 * threads}, f32);
  launch(stream(), 1, threads, 0, copy_vectors_kernel,
         values.data<float>() + (is_planted("misaligned-vector") ? 1 : 0), copies.data<float>());
  synchronize(stream());
}

void recursion_without_end() {
  const Tensor weights = ones({4}, f32), heaviest = empty({threads}, f32);
  const int child = is_planted("recursion-without-end") ? 1 : 0;
  const Tensor children =
      tensor(std::vector<std::int32_t>{0, 0, 2, 3, 0, 0, child, child}, cuda(0));
  launch(stream(), 1, threads, 0, heaviest_path_kernel, weights.data<float>(),
         children.data<std::int32_t>(), heaviest.data<float>());
  synchronize(stream());
}

void no_peer_access() {
  const Tensor values = ones({threads}, {.dtype = DType::f32, .device = cuda(1)});
  const Tensor copies = empty({threads}, f32);
  synchronize(current_stream(cuda(1)));
  if (!is_planted("no-peer-access")) cudaDeviceEnablePeerAccess(1, 0);
  launch(stream(), 1, threads, 0, copy_values_kernel, values.data<float>(), copies.data<float>());
  synchronize(stream());
}

}  // namespace planted
