#pragma once

#include <type_traits>
#include <utility>

#include "cuda/launch.hpp"
#include "cuda/scratch.hpp"

/// @file
/// A stable sort of small integer keys with their positions: least significant digit first, each
/// pass a count, a scan and a scatter. No atomics, so that equal keys keep their order.

namespace lockstep::cuda_kernels {

inline constexpr int digit_bits = 4;
inline constexpr int digits = 1 << digit_bits;
inline constexpr int sort_threads = 256;
inline constexpr int keys_per_thread = 8;

/// A key and where it stood. As wide as the key: lists are copied whole, padding would be
/// undefined.
template <class Key>
struct Keyed {
  Key key;
  std::conditional_t<sizeof(Key) == 8, std::int64_t, std::uint32_t> position;
};

inline std::int64_t sort_blocks(std::int64_t n) {
  constexpr std::int64_t per_block = sort_threads * keys_per_thread;
  return (n + per_block - 1) / per_block;
}

/// Bytes for sorting n entries: two lists that take turns, and a count per block and digit.
template <class Entry>
std::size_t sort_scratch_bytes(std::int64_t n) {
  return static_cast<std::size_t>(2 * n) * sizeof(Entry) +
         static_cast<std::size_t>(sort_blocks(n) * digits) * sizeof(std::uint32_t);
}

/// Digits of the key: what entries are sorted by, as a rule.
struct KeyDigit {
  template <class Entry>
  __device__ int operator()(const Entry& entry, int shift) const {
    return static_cast<int>(entry.key >> shift) & (digits - 1);
  }
};

/// The thread's own keys of each digit; returns the index of its first key.
template <class Entry, class Digit>
__device__ std::int64_t count_own(const Entry* in, std::int64_t n, const Digit& digit, int shift,
                                  std::uint32_t (*counts)[sort_threads]) {
  const std::int64_t first = global_thread() * keys_per_thread;
  for (int d = 0; d < digits; ++d) counts[d][threadIdx.x] = 0;
  for (std::int64_t i = first; i < first + keys_per_thread && i < n; ++i)
    ++counts[digit(in[i], shift)][threadIdx.x];
  return first;
}

template <class Entry, class Digit>
__global__ void count_digits_kernel(const Entry* in, std::int64_t n, Digit digit, int shift,
                                    std::uint32_t* block_counts) {
  __shared__ std::uint32_t counts[digits][sort_threads];
  count_own(in, n, digit, shift, counts);
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

template <class Entry, class Digit>
__global__ void scatter_digits_kernel(Entry* out, const Entry* in, std::int64_t n, Digit digit,
                                      int shift, const std::uint32_t* block_starts) {
  __shared__ std::uint32_t counts[digits][sort_threads];
  const std::int64_t first = count_own(in, n, digit, shift, counts);
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
    out[counts[digit(in[i], shift)][threadIdx.x]++] = in[i];
}

/// A list of entries that is sorted, in memory of its own.
template <class Entry>
class RadixSort {
 public:
  RadixSort(StreamRef stream, std::int64_t n)
      : stream_(stream),
        n_(n),
        scratch_(sort_scratch_bytes<Entry>(n), stream),
        entries_(static_cast<Entry*>(scratch_.data())),
        other_(entries_ + n),
        counts_(reinterpret_cast<std::uint32_t*>(other_ + n)) {}

  /// Where the entries stand: to be filled, and after `by` in order.
  Entry* entries() const { return entries_; }
  /// Sorts by `bits` bits of what `digit(entry, shift)` gives digits of; equal ones keep their
  /// order.
  template <class Digit>
  void by(const Digit& digit, int bits) {
    const auto blocks = static_cast<unsigned>(sort_blocks(n_));
    for (int shift = 0; shift < bits; shift += digit_bits) {
      launch(stream_, blocks, sort_threads, 0, count_digits_kernel<Entry, Digit>, entries_, n_,
             digit, shift, counts_);
      launch(stream_, 1, sort_threads, 0, scan_counts_kernel, counts_,
             static_cast<std::int64_t>(blocks) * digits);
      launch(stream_, blocks, sort_threads, 0, scatter_digits_kernel<Entry, Digit>, other_,
             entries_, n_, digit, shift, counts_);
      std::swap(entries_, other_);
    }
  }

 private:
  StreamRef stream_;
  std::int64_t n_;
  Scratch scratch_;
  Entry* entries_;
  Entry* other_;
  std::uint32_t* counts_;
};

}  // namespace lockstep::cuda_kernels
