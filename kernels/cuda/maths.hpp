#pragma once

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Kernels of the ops in functional/ops.def. Contracts: backend/elementwise.hpp.

namespace lockstep::cuda_kernels {

void unary(UnaryOp op, const ArrayView& y, const ArrayView& x, OpConstants constants,
           StreamRef stream);
/// `saved` is what the op's backward reads, x or y; absent for ops that save nothing.
void unary_backward(UnaryOp op, const ArrayView& dx, const ArrayView& dy, const ArrayView& saved,
                    OpConstants constants, StreamRef stream);
void binary(BinaryOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
            OpConstants constants, StreamRef stream);
/// The gradient of one operand, the first one or the second.
void binary_backward(BinaryOp op, bool second, const ArrayView& gradient, const ArrayView& dout,
                     const ArrayView& a, const ArrayView& b, OpConstants constants,
                     StreamRef stream);

}  // namespace lockstep::cuda_kernels
