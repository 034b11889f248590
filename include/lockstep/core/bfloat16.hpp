#pragma once

#include <bit>
#include <cstdint>

#include "lockstep/core/macros.hpp"

/// @file
/// bfloat16 storage type: the upper half of an IEEE binary32.

namespace lockstep {

/// 16-bit brain float: 8 exponent bits, 7 fraction bits. Storage and conversion only; arithmetic
/// happens in float. Conversion from float rounds to nearest even and keeps NaN quiet.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds a float to the nearest bfloat16, ties to even.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE explicit BFloat16(float value) : bits(round(value)) {}
  /// Widens exactly.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  /// Reinterprets a 16-bit pattern.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static BFloat16 from_bits(std::uint16_t pattern) {
    BFloat16 value;
    value.bits = pattern;
    return value;
  }

 private:
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static std::uint16_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    const std::uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (word >> 16) | 0x0040u;
    return static_cast<std::uint16_t>(is_nan ? quiet : rounded);
  }
};

/// Compares as float does: NaN is unequal to itself, both zeros are equal.
LOCKSTEP_HD inline bool operator==(BFloat16 a, BFloat16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}

}  // namespace lockstep
