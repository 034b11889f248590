#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// Reductions in two stages, with the bits of one: what the ranks of a host give together stays in
/// the type in which `host::fold` accumulates, wherever rounding it would be seen.

namespace lockstep::comm::hier {

/// The dtype of a host's partial results.
DType partial_dtype(DType dtype, ReduceKind kind);
/// What the ranks of a host do with each other's values.
ReduceOp inner_reduction(const ReduceOp& reduction);
/// What the leaders do with partial results.
ReduceOp outer_reduction(const ReduceOp& reduction);

/// Values as a rank contributes them, in the dtype of partial results; where that is theirs, a
/// copy.
void widen(DType dtype, ReduceKind kind, const std::byte* values, std::byte* partials,
           std::int64_t count);
/// Makes results of what all hosts give together; averages are taken here.
/// @param partials overwritten. @param results may be where the partial results are, if the dtype
/// is theirs.
void finish(DType dtype, ReduceKind kind, int ranks, std::byte* partials, std::byte* results,
            std::int64_t count);

}  // namespace lockstep::comm::hier
