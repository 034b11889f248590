#pragma once

#include <cstddef>

#include "arguments/embedding.hpp"

/// @file
/// Embedding look-up and its gradient.

namespace lockstep::cuda_kernels {

void embedding(const kernels::EmbeddingArguments& arguments, StreamRef stream);

/// Bytes of scratch memory that `embedding_backward` needs for n indices.
std::size_t embedding_scratch_bytes(std::int64_t n);
/// Adds to dtable, whatever `accumulate` says; the caller has zeroed it where it must be.
void embedding_backward(const kernels::EmbeddingBackwardArguments& arguments, void* scratch,
                        StreamRef stream);

}  // namespace lockstep::cuda_kernels
