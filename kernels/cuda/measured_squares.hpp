#pragma once

#include "cuda/optimizer_table.hpp"
#include "cuda/row_access.hpp"

/// @file
/// Passes that measure tensors.

namespace lockstep::cuda_kernels {

/// In double each: squares of f32 may be beyond its range. The pass waits for memory all the same.
template <class T>
__device__ void add_squares(double (&sums)[2], const functional::Measured<T>& measured) {
  sums[0] += double(measured.parameter) * double(measured.parameter);
  sums[1] += double(measured.update) * double(measured.update);
}

/// Adds up what a chunk's threads have measured: each leaves the chunk's sums in `partials`, and
/// the last block of a tensor adds them, in their order. For all threads of a block.
template <class Table>
__device__ void add_up(const Table& table, int tensor, const double (&sums)[2], double* squares,
                       double* partials) {
  constexpr unsigned threads = optimizer_threads;
  const unsigned chunks = table.chunks_of(tensor);
  bool is_last = false;
  for (int i = 0; i < 2; ++i) {
    const double total = BlockGroup{}.reduce(sums[i], Sum{});
    if (threadIdx.x == 0) partials[2 * blockIdx.x + static_cast<unsigned>(i)] = total;
  }
  if (threadIdx.x == 0)
    is_last = arrive(*static_cast<StepCounter*>(table.array[counter_pointer][tensor]), chunks);
  if (!__syncthreads_or(is_last)) return;
  __threadfence();
  // Written by other blocks: not to be taken from what this one may have read before.
  const volatile double* const own = partials + 2 * table.first_block[tensor];
  for (unsigned i = 0; i < 2; ++i) {
    double sum = 0;
    for (unsigned chunk = threadIdx.x; chunk < chunks; chunk += threads) sum += own[2 * chunk + i];
    sum = BlockGroup{}.reduce(sum, Sum{});
    if (threadIdx.x == 0) squares[2 * (table.first_tensor + tensor) + static_cast<int>(i)] = sum;
  }
}

}  // namespace lockstep::cuda_kernels
