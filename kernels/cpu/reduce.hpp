#pragma once

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"

namespace lockstep::host {

/// `backend::Reduce::reduce`. Work is split by the size of the operands, never by the number of
/// threads, so the result has the same bits at any thread count.
void reduce(ReduceOp op, const ArrayView& out, const ArrayView& in, bool accumulate);

}  // namespace lockstep::host
