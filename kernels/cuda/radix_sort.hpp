#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "cuda/launch.hpp"
#include "cuda/scratch.hpp"
#include "cuda/vector.hpp"

/// @file
/// A stable sort of small integer keys with their positions: least significant digit first, each
/// pass a count and a scatter, with a scan between them where there are many blocks. Only counts
/// are atomic, so that equal keys keep their order.

namespace lockstep::cuda_kernels {

inline constexpr int digit_bits = 8;
inline constexpr int digits = 1 << digit_bits;
inline constexpr int sort_threads = digits;  // a thread a digit, where they are counted
inline constexpr int sort_warps = sort_threads / warp_size;
inline constexpr int keys_per_thread = 8;
/// So many blocks at most add up each other's counts themselves.
inline constexpr std::int64_t most_unscanned_blocks = 64;

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

/// Bytes for sorting n entries: two lists that take turns, and a count per digit and block, and per
/// digit.
template <class Entry>
std::size_t sort_scratch_bytes(std::int64_t n) {
  return static_cast<std::size_t>(2 * n) * sizeof(Entry) +
         static_cast<std::size_t>((sort_blocks(n) + 1) * digits) * sizeof(std::uint32_t);
}

/// Digits of the key: what entries are sorted by, as a rule.
struct KeyDigit {
  template <class Entry>
  __device__ int operator()(const Entry& entry, int shift) const {
    return static_cast<int>(entry.key >> shift) & (digits - 1);
  }
};

/// Entries that stand in a list.
template <class Entry>
struct ListedEntries {
  const Entry* list;
  __device__ Entry operator()(std::int64_t i) const { return list[i]; }
};

/// How many entries of each digit the block has: [digits, blocks].
template <class Entries, class Digit>
__global__ void __launch_bounds__(sort_threads)
    count_digits_kernel(Entries entries, std::int64_t n, Digit digit, int shift,
                        std::uint32_t* counts) {
  __shared__ std::uint32_t own[digits];
  own[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t first = std::int64_t{blockIdx.x} * sort_threads * keys_per_thread;
  for (int k = 0; k < keys_per_thread; ++k) {
    const std::int64_t at = first + k * sort_threads + threadIdx.x;
    if (at < n) atomicAdd(&own[digit(entries(at), shift)], 1u);
  }
  __syncthreads();
  counts[std::int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

/// Replaces a digit's counts by the sums of those before them. A block a digit.
static __global__ void __launch_bounds__(sort_threads)
    scan_counts_kernel(std::uint32_t* counts, std::int64_t blocks, std::uint32_t* totals) {
  __shared__ std::uint32_t sums[sort_threads];
  std::uint32_t* const own = counts + blockIdx.x * blocks;
  const std::int64_t share = (blocks + sort_threads - 1) / sort_threads;
  const std::int64_t first = threadIdx.x * share;
  const std::int64_t last = first + share < blocks ? first + share : blocks;
  std::uint32_t sum = 0;
  for (std::int64_t i = first; i < last; ++i) sum += own[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  std::uint32_t running = 0;
  for (unsigned t = 0; t < threadIdx.x; ++t) running += sums[t];
  for (std::int64_t i = first; i < last; ++i) {
    const std::uint32_t count = own[i];
    own[i] = running;
    running += count;
  }
  if (threadIdx.x == sort_threads - 1) totals[blockIdx.x] = running;
}

/// Counts of one digit.
struct DigitCounts {
  std::uint32_t before;  ///< in blocks before the own one
  std::uint32_t all;
};

/// @param totals null: the counts are not scanned
__device__ inline DigitCounts counts_of(unsigned digit, const std::uint32_t* counts,
                                        const std::uint32_t* totals) {
  const std::uint32_t* const own = counts + std::int64_t{digit} * gridDim.x;
  if (totals) return {own[blockIdx.x], totals[digit]};
  DigitCounts sum{0, 0};
  for (unsigned block = 0; block < gridDim.x; ++block) {
    sum.all += own[block];
    if (block < blockIdx.x) sum.before += own[block];
  }
  return sum;
}

/// The sum of the values of all threads before the own one.
__device__ inline std::uint32_t sum_before(std::uint32_t value) {
  __shared__ std::uint32_t sums[sort_threads];
  std::uint32_t sum = value;
  for (unsigned step = 1; step < sort_threads; step *= 2) {
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= step) sum += sums[threadIdx.x - step];
    __syncthreads();
  }
  return sum - value;
}

/// The lanes that are there and have the same digit as this one.
__device__ inline unsigned lanes_alike(bool is_there, int digit, int bits) {
  constexpr unsigned all = 0xFFFFFFFFu;
  unsigned alike = __ballot_sync(all, is_there);
  for (int bit = 0; bit < bits; ++bit) {
    const bool is_set = digit >> bit & 1;
    const unsigned set = __ballot_sync(all, is_set);
    alike &= is_set ? set : ~set;
  }
  return alike;
}

/// Puts the entries in the order of their digits. Each warp has neighbouring ones, 32 at a time,
/// and numbers those of one digit as they come.
/// @param bits of the digit that are not 0 everywhere
template <class Entry, class Entries, class Digit>
__global__ void __launch_bounds__(sort_threads)
    scatter_digits_kernel(Entry* out, Entries entries, std::int64_t n, Digit digit, int shift,
                          int bits, const std::uint32_t* counts, const std::uint32_t* totals) {
  __shared__ std::uint32_t seen[sort_warps][digits];
  for (auto& of_warp : seen) of_warp[threadIdx.x] = 0;
  __syncthreads();
  const unsigned warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * sort_warps + warp) * warp_size * keys_per_thread;
  Entry own[keys_per_thread];
  std::uint32_t number[keys_per_thread];
  LOCKSTEP_UNROLL
  for (int k = 0; k < keys_per_thread; ++k) {
    if (first + k * warp_size >= n) continue;
    const std::int64_t at = first + k * warp_size + lane;
    const bool is_there = at < n;
    if (is_there) own[k] = entries(at);
    const int d = is_there ? digit(own[k], shift) : 0;
    const unsigned alike = lanes_alike(is_there, d, bits);
    const unsigned before = alike & ((1u << lane) - 1);
    number[k] = seen[warp][d] + static_cast<unsigned>(__popc(before));
    __syncwarp();
    if (is_there && !before) seen[warp][d] += static_cast<unsigned>(__popc(alike));
    __syncwarp();
  }
  __syncthreads();
  const DigitCounts of_digit = counts_of(threadIdx.x, counts, totals);
  std::uint32_t start = sum_before(of_digit.all) + of_digit.before;
  for (auto& of_warp : seen) {
    const std::uint32_t count = of_warp[threadIdx.x];
    of_warp[threadIdx.x] = start;
    start += count;
  }
  __syncthreads();
  LOCKSTEP_UNROLL
  for (int k = 0; k < keys_per_thread; ++k)
    if (first + k * warp_size + lane < n)
      out[seen[warp][digit(own[k], shift)] + number[k]] = own[k];
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
    for (int shift = 0; shift < bits; shift += digit_bits)
      pass(ListedEntries<Entry>{entries_}, digit, shift, bits);
  }
  /// The same of `entries(i)`, which need not stand anywhere. @pre there are bits
  template <class Entries, class Digit>
  void by(const Entries& entries, const Digit& digit, int bits) {
    pass(entries, digit, 0, bits);
    for (int shift = digit_bits; shift < bits; shift += digit_bits)
      pass(ListedEntries<Entry>{entries_}, digit, shift, bits);
  }

 private:
  template <class Entries, class Digit>
  void pass(const Entries& entries, const Digit& digit, int shift, int bits) {
    const std::int64_t blocks = sort_blocks(n_);
    const bool scans = blocks > most_unscanned_blocks;
    std::uint32_t* const totals = scans ? counts_ + blocks * digits : nullptr;
    const auto grid = static_cast<unsigned>(blocks);
    launch(stream_, grid, sort_threads, 0, count_digits_kernel<Entries, Digit>, entries, n_, digit,
           shift, counts_);
    if (scans)
      launch(stream_, digits, sort_threads, 0, scan_counts_kernel, counts_, blocks, totals);
    launch(stream_, grid, sort_threads, 0, scatter_digits_kernel<Entry, Entries, Digit>, other_,
           entries, n_, digit, shift, std::min(bits - shift, digit_bits), counts_, totals);
    std::swap(entries_, other_);
  }

  StreamRef stream_;
  std::int64_t n_;
  Scratch scratch_;
  Entry* entries_;
  Entry* other_;
  std::uint32_t* counts_;
};

}  // namespace lockstep::cuda_kernels
