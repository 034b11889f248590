#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// `fold` in parts: what several ranks, or hosts, do one after the other so that all together take
/// the sums of `fold`, bit for bit.

namespace lockstep::comm::host {

/// The dtype of partial results: that in which `fold` accumulates, wherever it would be seen in the
/// end that they were kept in a smaller one.
DType partial_dtype(DType dtype, ReduceKind kind);

/// What is done with partial results: factors count at the beginning, averages are taken at the
/// end.
ReduceOp partial_reduction(const ReduceOp& reduction);

/// This rank's contribution as a partial result, times its factor if the sum is scaled.
/// @param partial may be the values, where the dtype is theirs. @throws Unsupported as `fold`.
void begin_partial(DType dtype, const ReduceOp& reduction, const std::byte* values,
                   std::byte* partial, std::int64_t count);

/// Combines the partial result of some ranks with that of the ranks that follow them, in place.
void combine_partial(DType dtype, const ReduceOp& reduction, std::byte* partial,
                     const std::byte* following, std::int64_t count);

/// The results of a group of `ranks`, rounded once.
/// @param partial used up. @param results may be the partial ones, where the dtype is theirs.
void finish_partial(DType dtype, const ReduceOp& reduction, int ranks, std::byte* partial,
                    std::byte* results, std::int64_t count);

}  // namespace lockstep::comm::host
