#pragma once

#include <array>
#include <cstdint>

#include "lockstep/core/macros.hpp"

/// @file
/// Philox4x32-10, the counter-based random number generator of Salmon, Moraes, Dror and Shaw,
/// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Element i of a random tensor depends on
/// (seed, offset, i) alone, so CPU and GPU draw the same numbers at any thread count.

namespace lockstep {

/// Four 32-bit words: a counter or a block of random bits.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// One block of 128 random bits.
/// @param counter 128-bit position in the sequence, lowest word first.
/// @param key 64-bit key, lowest word first.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE PhiloxBlock philox4x32_10(PhiloxBlock counter,
                                                             std::uint32_t key0,
                                                             std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * counter.word[0];
    const std::uint64_t p1 = 0xCD9E8D57ull * counter.word[2];
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// The place of one draw in the random sequence: every op that draws takes one from a Generator.
struct PhiloxState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;

  /// Random word of element `index` within this draw.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE std::uint32_t word(std::uint64_t index) const {
    return block(index >> 2).word[index & 3u];
  }
  /// The block that serves elements 4 * `index` to 4 * `index` + 3.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE PhiloxBlock block(std::uint64_t index) const {
    return philox4x32_10(
        {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
          static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32)}},
        static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  }
};

/// Uniform float in [0, 1) with 24 random bits.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float uniform_from_bits(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace lockstep
