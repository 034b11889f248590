#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "functional/math.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {

using functional::math::SmallAngle;

/// Calls `body(begin, end, operand)` for parts of [0, n), to compute with `operand(x[i])`: x[i],
/// or, where a function of angles finds none in a part that needs a call, a SmallAngle, as no loop
/// with a call in it is vectorised.
template <bool of_angles, class T, class Body>
LOCKSTEP_ALWAYS_INLINE void for_each_part(const T* x, std::int64_t n, Body&& body) {
  const auto as_it_is = [](T operand) { return operand; };
  if constexpr (of_angles && std::is_same_v<T, float>) {
    constexpr std::int64_t part = 1024;
    for (std::int64_t begin = 0; begin < n; begin += part) {
      const std::int64_t end = std::min(n, begin + part);
      int others = 0;
      for (std::int64_t i = begin; i < end; ++i)
        others |= !functional::math::detail::is_small(x[i]);
      if (others)
        body(begin, end, as_it_is);
      else
        body(begin, end, [](float angle) { return SmallAngle{angle}; });
    }
  } else {
    body(std::int64_t{0}, n, as_it_is);
  }
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
