#pragma once

#include <cstdint>

/// @file
/// What is done to one row of an image. Compiled twice, so that a processor with AVX2 uses it.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOCKSTEP_BENCHMARK_VECTORS [[gnu::target_clones("avx2", "default")]]
#else
#define LOCKSTEP_BENCHMARK_VECTORS
#endif

namespace lockstep::benchmark {

/// Sorts `count` pixels of three colours into three rows of `count` bytes, one after the other.
LOCKSTEP_BENCHMARK_VECTORS inline void split_colours(const std::uint8_t* __restrict pixels,
                                                     std::int64_t count,
                                                     std::uint8_t* __restrict rows) {
  for (std::int64_t i = 0; i < count; ++i) {
    rows[i] = pixels[3 * i];
    rows[count + i] = pixels[3 * i + 1];
    rows[2 * count + i] = pixels[3 * i + 2];
  }
}

/// to[i] = from[i] * scale + shift.
LOCKSTEP_BENCHMARK_VECTORS inline void normalise(const std::uint8_t* __restrict from,
                                                 std::int64_t count, float scale, float shift,
                                                 float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * scale + shift;
}

/// The same, from the row's end to its beginning.
LOCKSTEP_BENCHMARK_VECTORS inline void normalise_mirrored(const std::uint8_t* __restrict from,
                                                          std::int64_t count, float scale,
                                                          float shift, float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<float>(from[count - 1 - i]) * scale + shift;
}

}  // namespace lockstep::benchmark

#undef LOCKSTEP_BENCHMARK_VECTORS
