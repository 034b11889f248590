#pragma once

#include <bit>
#include <cstdint>

#include "functional/namespace.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/philox.hpp"

/// @file
/// What optimizers remember in 8 or 16 bits an element. Rounding is stochastic: up with the
/// probability that keeps the mean. To the nearest, a mean of squares that changes by a thousandth
/// a step would stand still.

namespace lockstep {

/// Elements of a state in 8 bits that share a scale: the largest magnitude among them.
inline constexpr std::int64_t state_block = 256;

/// Random bits for the roundings of an array in one step of its tensor.
/// @param key tells the tensors of an optimizer apart @param step from 1
/// @param array 0 for the parameter, from 1 for its states
LOCKSTEP_HD inline PhiloxState rounding_draw(std::uint64_t key, std::int64_t step, int array) {
  constexpr std::uint64_t apart_from_seeds = 0x6C6F636B73746570;  // "lockstep"
  return {apart_from_seeds + key,
          4 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(array)};
}

/// 16 random bits for each of 8 neighbours, the first at a multiple of 8.
inline constexpr std::int64_t roundings_at_once = 8;
/// Those of the j-th neighbour, j < 8, from `draw.block(first / 8)`.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE std::uint32_t rounding_bits(const PhiloxBlock& block, int j) {
  return (block.word[j / 2] >> (16 * (j % 2))) & 0xFFFFu;
}

}  // namespace lockstep

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// 10^-exponent, the same on every device.
LOCKSTEP_HD constexpr float negative_power_of_10(int exponent) {
  float power = 1.0f;
  for (int i = 0; i < exponent; ++i) power *= 0.1f;
  return power;
}

/// Magnitudes up to 1 in 7 or 8 bits: the dynamic tree of Dettmers ("8-bit approximations for
/// parallelism in deep learning", 2016). The position of a code's leading one names a decade, the
/// bits behind it divide that evenly: fine steps for what is large, and seven decades. Here codes
/// stand for the ends of these steps, so that 0 and 1 have theirs.
template <int bits>
struct DynamicTree {
  static constexpr int decades = bits;

  /// The value of a code below 2^bits.
  LOCKSTEP_HD static constexpr float decode(unsigned code) {
    if (code == 0) return 0.0f;
    int fraction_bits = 0;
    while (2u << fraction_bits <= code) ++fraction_bits;
    const int decade = decades - 1 - fraction_bits;
    const unsigned all = 1u << fraction_bits, steps = code - all + 1;
    if (steps == all) return negative_power_of_10(decade);
    return bottom(decade) + static_cast<float>(steps) / steps_per_unit(decade);
  }

  /// A neighbouring code of a value in [0, 1]; of the value of a code, that one, whatever the
  /// chance. @param chance in [0, 1): at random to round stochastically, 0.5 to the nearest.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static unsigned encode(float value, float chance) {
    const Decade decade = decade_of<0>(value);
    // Scaling has rounded values of codes, by up to that many steps.
    const float error = static_cast<float>(decade.steps) * 0x1p-21f;
    const float place = (value - decade.bottom) * decade.steps_per_unit;
    const int below = static_cast<int>(place + error);
    const float rest = place - static_cast<float>(below);
    const int step = below + static_cast<int>((rest > error ? rest : 0.0f) + chance);
    return static_cast<unsigned>(decade.steps - 1 + (step < decade.steps ? step : decade.steps));
  }

 private:
  LOCKSTEP_HD static constexpr float bottom(int decade) {
    return decade + 1 < decades ? negative_power_of_10(decade + 1) : 0.0f;
  }
  LOCKSTEP_HD static constexpr float steps_per_unit(int decade) {
    return static_cast<float>(1 << (decades - 1 - decade)) /
           (negative_power_of_10(decade) - bottom(decade));
  }

  struct Decade {
    float bottom, steps_per_unit;
    int steps;
  };
  // Without a branch: loops over neighbours become vectors.
  template <int decade>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static Decade decade_of(float value) {
    constexpr float low = bottom(decade), scale = steps_per_unit(decade);
    constexpr int steps = 1 << (decades - 1 - decade);
    if constexpr (decade + 1 == decades) {
      return {low, scale, steps};
    } else {
      const Decade below = decade_of<decade + 1>(value);
      const bool here = value > low;
      return {here ? low : below.bottom, here ? scale : below.steps_per_unit,
              here ? steps : below.steps};
    }
  }
};

/// The code of an element that may be negative, and of one that may not: then only 0 becomes 0,
/// for it may be divided by.
template <bool nonnegative>
struct StateCode {
  using Tree = DynamicTree<nonnegative ? 8 : 7>;

  /// For a block's scale of 1.
  LOCKSTEP_HD static constexpr float decode(unsigned code) {
    if constexpr (nonnegative) return Tree::decode(code);
    return code < 128 ? Tree::decode(code) : -Tree::decode(code - 128);
  }
  /// @param scale the block's @param chance as DynamicTree::encode
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static std::uint8_t encode(float value, float scale,
                                                                float chance) {
    const float magnitude = value < 0 ? -value : value;
    // In a block of zeros the scale is 0; in one with NaN or infinity it is infinity, and 0 times
    // that is the NaN that all elements become.
    float part = magnitude / scale;
    part = part <= 1 ? part : 0.0f;
    const unsigned code = Tree::encode(part, chance);
    if constexpr (nonnegative)
      return static_cast<std::uint8_t>(
          code + unsigned((code == 0) & (value > 0) & (scale <= 0x1.FFFFFEp127f)));
    else
      return static_cast<std::uint8_t>(value < 0 ? code + 128 : code);
  }
};

/// What an element contributes to its block's scale, the largest of these: NaN counts as infinity,
/// which then makes NaN of the block.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float scale_of(float value) {
  const float magnitude = value < 0 ? -value : value;
  return magnitude <= 0x1.FFFFFEp127f ? magnitude : std::bit_cast<float>(0x7F800000u);
}

/// The chance that 16 random bits make.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE float chance_of(std::uint32_t bits) {
  return static_cast<float>(bits) * 0x1p-16f;
}

/// Rounds to a neighbouring bf16: away from 0 with the probability that 16 random bits give it.
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE BFloat16 round_stochastically(float value, std::uint32_t bits) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
  return BFloat16::from_bits(
      static_cast<std::uint16_t>((is_nan ? word | 0x00400000u : word + bits) >> 16));
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
