#pragma once

#include "functional/namespace.hpp"
#include "functional/op_list.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Elementwise comparisons, over the accumulation type.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// a `op` b. NaN differs from everything, itself included, and is true for logical ops.
template <CompareOp op, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE bool compare(T a, T b) {
#define LOCKSTEP_COMPARE_OP(name, autocast, ...) \
  if constexpr (op == CompareOp::name) return __VA_ARGS__;
#include "functional/ops.def"
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
