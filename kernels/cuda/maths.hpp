#pragma once

#include "arguments/elementwise.hpp"

/// @file
/// Kernels of the ops in functional/ops.def.

namespace lockstep::cuda_kernels {

void unary(const kernels::UnaryArguments& arguments, StreamRef stream);
void unary_backward(const kernels::UnaryBackwardArguments& arguments, StreamRef stream);
void binary(const kernels::BinaryArguments& arguments, StreamRef stream);
void binary_backward(const kernels::BinaryBackwardArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
