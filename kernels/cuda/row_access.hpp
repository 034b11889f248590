#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/group.hpp"
#include "functional/group.hpp"

/// @file
/// How a group goes over a row: N neighbours a thread, wide where `wide` says that all rows are
/// aligned.

namespace lockstep::cuda_kernels {

using functional::Pack;

/// Neighbours that were loaded, in accumulation type.
template <int N, class T>
__device__ Pack<AccumulateType<T>, N> unpack(const Vector<T, N>& vector) {
#if defined(__CUDA_ARCH__)
  if constexpr (functional::moves_as_pairs<T, N>)
    return functional::widen_pairs<N, T>(std::bit_cast<functional::PairedElements<N>>(vector));
  else
#endif
  {
    Pack<AccumulateType<T>, N> pack;
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) pack[j] = convert<AccumulateType<T>>(vector.lane[j]);
    return pack;
  }
}

/// Neighbours as they lie in memory, in words: kept for later, the compiler takes 16-bit elements
/// apart as soon as they are there, and so waits for each load before the next.
template <class T, int N>
struct Words {
  std::uint32_t word[N * sizeof(T) / 4];
};
template <int N, class T>
__device__ Words<T, N> load_words(const T* address) {
  return std::bit_cast<Words<T, N>>(load_vector<N>(address));
}
template <class T, int N>
__device__ Pack<AccumulateType<T>, N> unpack(const Words<T, N>& words) {
  return unpack(std::bit_cast<Vector<T, N>>(words));
}

/// Neighbours as they are stored.
template <class T, int N>
__device__ Vector<T, N> packed(const Pack<AccumulateType<T>, N>& pack) {
#if defined(__CUDA_ARCH__)
  if constexpr (functional::moves_as_pairs<T, N>)
    return std::bit_cast<Vector<T, N>>(functional::narrow_pairs<T, N>(pack));
  else
#endif
  {
    Vector<T, N> vector;
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) vector.lane[j] = convert<T>(pack[j]);
    return vector;
  }
}

/// N neighbours from `at` on in accumulation type; 0 beyond the row's end.
template <int N, class T>
__device__ Pack<AccumulateType<T>, N> load_row(const T* row, std::int64_t at, std::int64_t columns,
                                               bool wide) {
  Pack<AccumulateType<T>, N> result;
  if (wide) {
    const Vector<T, N> loaded = load_vector<N>(row + at);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) result[j] = convert<AccumulateType<T>>(loaded.lane[j]);
  } else {
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j)
      result[j] = at + j < columns ? convert<AccumulateType<T>>(row[at + j]) : AccumulateType<T>(0);
  }
  return result;
}

/// True if wide loads may begin at an address.
LOCKSTEP_HD inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

/// Writes N neighbours from `at` on, those that are in the row.
template <int N, class T>
__device__ void store_row(T* row, std::int64_t at, std::int64_t columns, bool wide,
                          const Pack<AccumulateType<T>, N>& pack) {
  Vector<T, N> stored;
  LOCKSTEP_UNROLL
  for (int j = 0; j < N; ++j) stored.lane[j] = convert<T>(pack[j]);
  if (wide) return store_vector<N>(row + at, stored);
  LOCKSTEP_UNROLL
  for (int j = 0; j < N; ++j)
    if (at + j < columns) row[at + j] = stored.lane[j];
}

/// Calls `visit(at)` for the thread's share of a row, N elements a call.
template <int N, class Group, class Visit>
__device__ void for_each_vector(const Group& group, std::int64_t columns, const Visit& visit) {
  const std::int64_t step = static_cast<std::int64_t>(group.size()) * N;
  for (std::int64_t at = static_cast<std::int64_t>(group.rank()) * N; at < columns; at += step)
    visit(at);
}

/// True if rows of that many elements from these (contiguous) arrays allow wide loads, of T and of
/// as many f32.
template <class T, class... Pointers>
bool rows_are_wide(std::int64_t columns, const Pointers*... arrays) {
  constexpr std::uintptr_t alignment = std::max<std::uintptr_t>(16, lanes_of<T> * sizeof(float));
  return columns % lanes_of<T> == 0 &&
         ((reinterpret_cast<std::uintptr_t>(arrays) % alignment == 0) && ...);
}

/// Calls `visit(Width<lanes>{})` with the lanes of wide rows, or 1.
template <class T, class Visit>
void with_lanes(bool wide, const Visit& visit) {
  if (wide)
    visit(std::integral_constant<int, lanes_of<T>>{});
  else
    visit(std::integral_constant<int, 1>{});
}

}  // namespace lockstep::cuda_kernels
