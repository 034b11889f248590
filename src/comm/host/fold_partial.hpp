#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/operation.hpp"

/// @file
/// `fold` in parts: what each rank of a tree does, so that all together take the sums of `fold`,
/// bit for bit. Partial results are arrays of the accumulation type.

namespace lockstep::comm::host {

/// Bytes of `count` elements of a partial result.
std::int64_t partial_bytes(DType dtype, std::int64_t count);

/// This rank's contribution as a partial result, times its factor if the sum is scaled.
/// @throws Unsupported as `fold`.
void begin_partial(const Operation& operation, std::byte* partial);

/// Combines the partial result of some ranks with that of the ranks that follow them, in place.
void combine_partial(const Operation& operation, std::byte* partial, const std::byte* following);

/// The result of a group of `ranks`, rounded once; uses up the partial one.
void finish_partial(const Operation& operation, int ranks, std::byte* partial, std::byte* out);

}  // namespace lockstep::comm::host
