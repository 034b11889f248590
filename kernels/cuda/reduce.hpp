#pragma once

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Reductions and index kernels. Contracts: backend/reduce.hpp.

namespace lockstep::cuda_kernels {

/// Bytes of scratch memory that `reduce` needs.
std::size_t reduce_scratch_bytes(const ArrayView& out, const ArrayView& in);
void reduce(ReduceOp op, const ArrayView& out, const ArrayView& in, bool accumulate, void* scratch,
            StreamRef stream);

void arg_extreme(const ArrayView& out, const ArrayView& in, int dim, bool largest,
                 StreamRef stream);
void topk(const ArrayView& values, const ArrayView& indices, const ArrayView& in, std::int64_t k,
          StreamRef stream);
void cumsum(const ArrayView& out, const ArrayView& in, int dim, bool reverse, StreamRef stream);
void gather(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim,
            StreamRef stream);
void scatter_add(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim,
                 StreamRef stream);

}  // namespace lockstep::cuda_kernels
