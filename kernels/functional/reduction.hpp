#pragma once

#include <limits>

#include "functional/namespace.hpp"
#include "functional/op_list.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// What a reduction does with an element and with two partial results. T is a scalar type, or a
/// vector of lanes that the compiler offers the same operators for.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// Brings an element into partial form, in place.
template <ReduceOp op, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void reduction_prepare(T& x) {
  if constexpr (op == ReduceOp::square_sum) x = x * x;
}

/// Combines another partial result into `total`; a NaN in either stays.
template <ReduceOp op, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void reduction_combine(T& total, const T& other) {
  if constexpr (op == ReduceOp::amax)
    total = (total > other) | (total != total) ? total : other;
  else if constexpr (op == ReduceOp::amin)
    total = (total < other) | (total != total) ? total : other;
  else if constexpr (op == ReduceOp::prod)
    total = total * other;
  else
    total = total + other;
}

/// The partial result of no elements, on the host.
template <ReduceOp op, class T>
T reduction_identity() {
  using Limits = std::numeric_limits<T>;
  if constexpr (op == ReduceOp::amax)
    return Limits::has_infinity ? -Limits::infinity() : Limits::min();
  else if constexpr (op == ReduceOp::amin)
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  else
    return T(op == ReduceOp::prod ? 1 : 0);
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
