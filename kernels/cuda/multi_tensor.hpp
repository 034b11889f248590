#pragma once

#include "arguments/multi_tensor.hpp"

/// @file
/// Updates of whole lists of arrays in a few launches.

namespace lockstep::cuda_kernels {

/// Bytes of scratch memory that `sgd` and `adam` need.
std::size_t optimizer_scratch_bytes(std::span<const kernels::OptimizerTensors> tensors);
void sgd(const kernels::SgdArguments& arguments, void* scratch, StreamRef stream);
void adam(const kernels::AdamArguments& arguments, void* scratch, StreamRef stream);

/// Bytes of scratch memory that `square_sum` needs.
std::size_t square_sum_scratch_bytes(const kernels::SquareSumArguments& arguments);
void square_sum(const kernels::SquareSumArguments& arguments, void* scratch, StreamRef stream);
void clip(const kernels::ClipArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
