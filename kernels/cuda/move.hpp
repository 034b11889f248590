#pragma once

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Kernels that move, select and compare elements. Contracts: backend/elementwise.hpp.

namespace lockstep::cuda_kernels {

void copy(const ArrayView& out, const ArrayView& in, StreamRef stream);
void fill(const ArrayView& out, double value, StreamRef stream);
void where(const ArrayView& out, const ArrayView& condition, const ArrayView& a, const ArrayView& b,
           StreamRef stream);
void compare(CompareOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
             StreamRef stream);

}  // namespace lockstep::cuda_kernels
