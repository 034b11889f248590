#pragma once

#include <bit>

#include "cuda/launch.hpp"

/// @file
/// A stable sort of small integer keys with their positions: least significant digit first, each
/// pass a count, a scan and a scatter. No atomics, so that equal keys keep their order.

namespace lockstep::cuda_kernels {

inline constexpr int digit_bits = 4;
inline constexpr int digits = 1 << digit_bits;
inline constexpr int sort_threads = 256;
inline constexpr int keys_per_thread = 8;

/// A key and where it stood.
struct KeyAt {
  std::uint32_t key;
  std::uint32_t position;
};

inline std::int64_t sort_blocks(std::int64_t n) {
  constexpr std::int64_t per_block = sort_threads * keys_per_thread;
  return (n + per_block - 1) / per_block;
}

/// Bytes for sorting n keys: two lists that take turns, and a count per block and digit.
inline std::size_t sort_scratch_bytes(std::int64_t n) {
  return static_cast<std::size_t>(2 * n) * sizeof(KeyAt) +
         static_cast<std::size_t>(sort_blocks(n) * digits) * sizeof(std::uint32_t);
}

__device__ inline int digit_of(const KeyAt& entry, int shift) {
  return static_cast<int>(entry.key >> shift) & (digits - 1);
}

/// The thread's own keys of each digit; returns the index of its first key.
__device__ inline std::int64_t count_own(const KeyAt* in, std::int64_t n, int shift,
                                         std::uint32_t (*counts)[sort_threads]) {
  const std::int64_t first = global_thread() * keys_per_thread;
  for (int d = 0; d < digits; ++d) counts[d][threadIdx.x] = 0;
  for (std::int64_t i = first; i < first + keys_per_thread && i < n; ++i)
    ++counts[digit_of(in[i], shift)][threadIdx.x];
  return first;
}

static __global__ void count_digits_kernel(const KeyAt* in, std::int64_t n, int shift,
                                           std::uint32_t* block_counts) {
  __shared__ std::uint32_t counts[digits][sort_threads];
  count_own(in, n, shift, counts);
  __syncthreads();
  if (threadIdx.x >= digits) return;
  std::uint32_t total = 0;
  for (int t = 0; t < sort_threads; ++t) total += counts[threadIdx.x][t];
  block_counts[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = total;
}

/// Exclusive sums of all counts, digits outermost, by one block.
static __global__ void scan_counts_kernel(std::uint32_t* counts, std::int64_t n) {
  __shared__ std::uint32_t totals[sort_threads];
  const std::int64_t share = (n + sort_threads - 1) / sort_threads;
  const std::int64_t first = threadIdx.x * share;
  const std::int64_t last = first + share < n ? first + share : n;
  std::uint32_t total = 0;
  for (std::int64_t i = first; i < last; ++i) total += counts[i];
  totals[threadIdx.x] = total;
  __syncthreads();
  std::uint32_t running = 0;
  for (unsigned t = 0; t < threadIdx.x; ++t) running += totals[t];
  for (std::int64_t i = first; i < last; ++i) {
    const std::uint32_t own = counts[i];
    counts[i] = running;
    running += own;
  }
}

static __global__ void scatter_digits_kernel(KeyAt* out, const KeyAt* in, std::int64_t n, int shift,
                                             const std::uint32_t* block_starts) {
  __shared__ std::uint32_t counts[digits][sort_threads];
  const std::int64_t first = count_own(in, n, shift, counts);
  __syncthreads();
  if (threadIdx.x < digits) {
    std::uint32_t running =
        block_starts[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
    for (int t = 0; t < sort_threads; ++t) {
      const std::uint32_t own = counts[threadIdx.x][t];
      counts[threadIdx.x][t] = running;
      running += own;
    }
  }
  __syncthreads();
  for (std::int64_t i = first; i < first + keys_per_thread && i < n; ++i)
    out[counts[digit_of(in[i], shift)][threadIdx.x]++] = in[i];
}

/// Sorts n entries that stand in `first` and returns the list that holds the result.
/// @param limit all keys are below it.
inline KeyAt* radix_sort(StreamRef stream, KeyAt* first, KeyAt* second, std::uint32_t* counts,
                         std::int64_t n, std::uint32_t limit) {
  const auto blocks = static_cast<unsigned>(sort_blocks(n));
  const int bits = std::bit_width(limit - 1);
  for (int shift = 0; shift < bits; shift += digit_bits) {
    launch(stream, blocks, sort_threads, 0, count_digits_kernel, first, n, shift, counts);
    launch(stream, 1, sort_threads, 0, scan_counts_kernel, counts,
           static_cast<std::int64_t>(blocks) * digits);
    launch(stream, blocks, sort_threads, 0, scatter_digits_kernel, second, first, n, shift, counts);
    std::swap(first, second);
  }
  return first;
}

}  // namespace lockstep::cuda_kernels
