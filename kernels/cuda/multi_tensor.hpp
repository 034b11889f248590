#pragma once

#include "arguments/multi_tensor.hpp"

/// @file
/// Updates of whole lists of arrays in a few launches.

namespace lockstep::cuda_kernels {

/// Bytes of scratch memory that a sum of squares over arrays needs.
std::size_t square_sum_scratch_bytes(std::span<const ArrayView> arrays);
void square_sum(const kernels::SquareSumArguments& arguments, void* scratch, StreamRef stream);
void average(const kernels::AverageArguments& arguments, StreamRef stream);
void clip(const kernels::ClipArguments& arguments, StreamRef stream);
void divide(const kernels::DivideArguments& arguments, void* scratch, StreamRef stream);
void gradient_scaling(const kernels::GradientScalingArguments& arguments, StreamRef stream);
void update_loss_scale(const kernels::LossScaleArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
