#pragma once

#include <cmath>
#include <string_view>

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// What every device asks of the operands of an elementwise op.

namespace lockstep::functional {

/// What helps where an op does not take a dtype: behind the words that say so.
inline std::string_view advice_of(DType dtype) {
  if (is_floating(dtype)) return "";
  return dtype == DType::boolean ? "; it computes with numbers: convert them by to(dtype)"
                                 : "; it needs a floating dtype: convert by to(dtype)";
}

/// Integer arithmetic takes whole constants only: 0.5 would silently become 0.
/// @throws InvalidArgument naming the op and its constants.
inline void check_whole_constants(std::string_view op, DType dtype, OpConstants constants) {
  const auto is_whole = [](double value) { return value == std::floor(value); };
  LOCKSTEP_CHECK(is_floating(dtype) || (is_whole(constants.alpha) && is_whole(constants.beta)),
                 InvalidArgument, op, ": dtype ", dtype, " takes whole constants, got ",
                 constants.alpha, " and ", constants.beta);
}

/// @throws InvalidArgument naming the op and both dtypes unless an operand has the output's.
inline void check_same_dtype(std::string_view op, const ArrayView& out, const ArrayView& operand) {
  LOCKSTEP_CHECK(operand.dtype == out.dtype, InvalidArgument, op, ": dtypes ", out.dtype, " and ",
                 operand.dtype, " differ");
}

/// True for the sum of an f32 array and one of a lower precision, which is f32: the addition widens
/// what it reads.
inline bool is_mixed_sum(BinaryOp op, const ArrayView& out, const ArrayView& a,
                         const ArrayView& b) {
  const auto is_lower = [](DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; };
  return op == BinaryOp::add && out.dtype == DType::f32 &&
         ((a.dtype == DType::f32 && is_lower(b.dtype)) ||
          (b.dtype == DType::f32 && is_lower(a.dtype)));
}

}  // namespace lockstep::functional
