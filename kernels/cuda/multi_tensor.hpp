#pragma once

#include "arguments/multi_tensor.hpp"

/// @file
/// Updates of whole lists of arrays in a few launches.

namespace lockstep::cuda_kernels {

void sgd(const kernels::SgdArguments& arguments, StreamRef stream);
void adam(const kernels::AdamArguments& arguments, StreamRef stream);

/// Bytes of scratch memory that `square_sum` needs.
std::size_t square_sum_scratch_bytes(const kernels::SquareSumArguments& arguments);
void square_sum(const kernels::SquareSumArguments& arguments, void* scratch, StreamRef stream);
void clip(const kernels::ClipArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
