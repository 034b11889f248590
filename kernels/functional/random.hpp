#pragma once

#include "functional/math.hpp"
#include "lockstep/core/philox.hpp"

/// @file
/// What a random op makes of its Philox words, over the accumulation type T.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// low + (high - low) * uniform
template <class T>
struct UniformDraw {
  T low, high;
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T operator()(std::uint32_t word) const {
    return low + (high - low) * static_cast<T>(uniform_from_bits(word));
  }
};

/// Two independent normal numbers from two words (Box and Muller 1958), drawn in float.
template <class T>
struct NormalDraw {
  T mean, deviation;
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(std::uint32_t word0, std::uint32_t word1,
                                                     T& first, T& second) const {
    // 1 - u lies in (0, 1]: its logarithm is finite.
    const float u = 1.0f - uniform_from_bits(word0);
    const float radius = math::sqrt(-2.0f * math::log(u));
    const math::SinCos angle = math::sincos_turns(uniform_from_bits(word1));
    first = mean + deviation * static_cast<T>(radius * angle.cos);
    second = mean + deviation * static_cast<T>(radius * angle.sin);
  }
};

/// Inverted dropout (Srivastava et al. 2014): x / (1 - p) where the word's uniform is >= p, else 0.
template <class T>
struct DropoutDraw {
  float p;
  T scale;  ///< 1 / (1 - p), or 0 for p = 1
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE T operator()(std::uint32_t word, T x) const {
    return uniform_from_bits(word) >= p ? x * scale : T(0);
  }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
