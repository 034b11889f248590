#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "functional/math.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {

using functional::math::CloseOperand;
using functional::math::SmallAngle;

/// Calls `body(begin, end, operand)` for parts of [0, n), to compute with `operand(x[i])`: x[i] as
/// it is or, in parts of which `is_simple(i)` holds throughout, a Simple, which needs no call: no
/// loop with a call in it is vectorised.
template <class Simple, class Check, class Body>
LOCKSTEP_ALWAYS_INLINE void for_each_part(std::int64_t n, Check is_simple, Body&& body) {
  constexpr std::int64_t part = 1024;
  for (std::int64_t begin = 0; begin < n; begin += part) {
    const std::int64_t end = std::min(n, begin + part);
    int others = 0;
    for (std::int64_t i = begin; i < end; ++i) others |= !is_simple(i);
    if (others)
      body(begin, end, [](auto operand) { return operand; });
    else
      body(begin, end, [](auto operand) { return Simple{operand}; });
  }
}

/// The same for functions of one operand: those of angles have parts, others are one.
template <bool of_angles, class T, class Body>
LOCKSTEP_ALWAYS_INLINE void for_each_part_of_angles(const T* x, std::int64_t n, Body&& body) {
  if constexpr (of_angles)
    for_each_part<SmallAngle<T>>(
        n, [x](std::int64_t i) { return functional::math::detail::is_small(x[i]); }, body);
  else
    body(std::int64_t{0}, n, [](T operand) { return operand; });
}

/// The same for functions of two operands: those of quotients in float have parts.
template <bool of_quotients, class T, class Body>
LOCKSTEP_ALWAYS_INLINE void for_each_part_of_quotients(const T* a, const T* b, std::int64_t n,
                                                       Body&& body) {
  if constexpr (of_quotients && std::is_same_v<T, float>)
    for_each_part<CloseOperand>(
        n, [a, b](std::int64_t i) { return functional::math::detail::are_close(a[i], b[i]); },
        body);
  else
    body(std::int64_t{0}, n, [](T operand) { return operand; });
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
