#pragma once

#include "arguments/reduction.hpp"

/// @file
/// Reductions, running sums and extremes.

namespace lockstep::cuda_kernels {

/// Bytes of scratch memory that `reduce` needs.
std::size_t reduce_scratch_bytes(const kernels::ReduceArguments& arguments);
void reduce(const kernels::ReduceArguments& arguments, void* scratch, StreamRef stream);

void arg_extreme(const kernels::ArgExtremeArguments& arguments, StreamRef stream);
void topk(const kernels::TopkArguments& arguments, StreamRef stream);
void cumsum(const kernels::CumsumArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
