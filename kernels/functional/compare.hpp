#pragma once

#include "functional/namespace.hpp"
#include "functional/op_list.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Elementwise comparisons, over the accumulation type.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// a `op` b. All but not_equal are false where either is NaN.
template <CompareOp op, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE bool compare(T a, T b) {
  if constexpr (op == CompareOp::equal) return a == b;
  if constexpr (op == CompareOp::not_equal) return a != b;
  if constexpr (op == CompareOp::less) return a < b;
  if constexpr (op == CompareOp::less_equal) return a <= b;
  if constexpr (op == CompareOp::greater) return a > b;
  if constexpr (op == CompareOp::greater_equal) return a >= b;
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
