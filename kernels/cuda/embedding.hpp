#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Embedding look-up and its gradient. Contracts: backend/rows.hpp.

namespace lockstep::cuda_kernels {

void embedding(const ArrayView& out, const ArrayView& table, const ArrayView& index,
               StreamRef stream);

/// Bytes of scratch memory that `embedding_backward` needs for n indices.
std::size_t embedding_scratch_bytes(std::int64_t n);
/// Adds to dtable; the caller has zeroed it where it must be.
void embedding_backward(const ArrayView& dtable, const ArrayView& dy, const ArrayView& index,
                        std::int64_t padding_index, void* scratch, StreamRef stream);

}  // namespace lockstep::cuda_kernels
