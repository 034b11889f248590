#pragma once

#include "arguments/embedding.hpp"

namespace lockstep::host {

/// Looks rows up. @throws InvalidArgument for an index out of range.
void embedding(const kernels::EmbeddingArguments& arguments);
/// Adds rows of dy to the table's gradient, each row's in the order of the index.
void embedding_backward(const kernels::EmbeddingBackwardArguments& arguments);

}  // namespace lockstep::host
