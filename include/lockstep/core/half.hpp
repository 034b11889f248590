#pragma once

#include <bit>
#include <cstdint>

#include "lockstep/core/macros.hpp"

/// @file
/// IEEE binary16 storage type.

namespace lockstep {

/// 16-bit IEEE float: 5 exponent bits, 10 fraction bits. Storage and conversion only; arithmetic
/// happens in float. Conversion from float rounds to nearest even, overflows to infinity, produces
/// subnormals, and keeps NaN quiet. All conversions are branch-free so that loops vectorise.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  /// Rounds a float to the nearest half, ties to even.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE explicit Half(float value) : bits(round(value)) {}
  /// Widens exactly.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE explicit operator float() const { return widen(bits); }

  /// Reinterprets a 16-bit pattern.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static Half from_bits(std::uint16_t pattern) {
    Half value;
    value.bits = pattern;
    return value;
  }

 private:
  // Multiplying by 2^112 (and 2^-112 back) moves between the two exponent biases and lets the
  // hardware's own rounding of subnormals do the work.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static float widen(std::uint16_t half) {
    const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7FFFu) << 13;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const bool special = (half & 0x7C00u) == 0x7C00u;
    const std::uint32_t word =
        special ? (magnitude | 0x7F800000u) : std::bit_cast<std::uint32_t>(scaled);
    return std::bit_cast<float>(word | sign);
  }

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static std::uint16_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7FFFFFFFu;
    // Normal results: rebias the exponent, then round the 13 dropped bits to nearest even.
    const std::uint32_t normal =
        (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal results: adding 0.5 aligns the fraction so that the addition itself rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u;
    const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    const std::uint32_t bounded = magnitude >= 0x477FF000u ? 0x7C00u : finite;
    const std::uint32_t nan = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
    return static_cast<std::uint16_t>(sign | (magnitude > 0x7F800000u ? nan : bounded));
  }
};

/// Compares as float does: NaN is unequal to itself, both zeros are equal.
LOCKSTEP_HD inline bool operator==(Half a, Half b) {
  return static_cast<float>(a) == static_cast<float>(b);
}

}  // namespace lockstep
