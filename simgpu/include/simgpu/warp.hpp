#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

/// @file
/// What the lanes of a warp do together: shuffles, votes, __syncwarp.

namespace simgpu {

/// How a shuffle finds the lane that it reads.
enum class Shuffle : unsigned char { index, up, down, exclusive_or };

/// The word that the lane found by `mode` and `operand` passed. All lanes of `mask` must come; a
/// finding if one never does, or if the lane that is read is not among them.
std::uint64_t warp_shuffle(unsigned mask, std::uint64_t word, Shuffle mode, int operand, int width);
/// Bit i: lane i of the mask came with a predicate that holds.
unsigned warp_ballot(unsigned mask, bool predicate);
/// Waits for all lanes of the mask.
void warp_barrier(unsigned mask);
/// The lanes of the warp that come here before no other thread of the block can run: those of one
/// branch. (A GPU may give fewer.)
unsigned active_lanes();
/// The lane of the running thread.
unsigned own_lane();

template <class T>
T shuffle(unsigned mask, T value, Shuffle mode, int operand, int width) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  word = warp_shuffle(mask, word, mode, operand, width);
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

}  // namespace simgpu

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return ::simgpu::shuffle(mask, value, ::simgpu::Shuffle::index, lane, width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return ::simgpu::shuffle(mask, value, ::simgpu::Shuffle::up, static_cast<int>(delta), width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return ::simgpu::shuffle(mask, value, ::simgpu::Shuffle::down, static_cast<int>(delta), width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  return ::simgpu::shuffle(mask, value, ::simgpu::Shuffle::exclusive_or, lane_mask, width);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { ::simgpu::warp_barrier(mask); }
inline unsigned __activemask() { return ::simgpu::active_lanes(); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return ::simgpu::warp_ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return ::simgpu::warp_ballot(mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return ::simgpu::warp_ballot(mask, predicate == 0) == 0;
}
