#pragma once

#include <cstddef>

#include "arguments/norm.hpp"

/// @file
/// Layer norm and RMS norm over rows: RMS norm is layer norm without mean and bias.

namespace lockstep::cuda_kernels {

/// Layer norm where `mean` is given, else RMS norm.
void layer_norm(const kernels::LayerNormArguments& arguments, StreamRef stream);

/// Bytes of scratch memory that `layer_norm_backward` needs.
std::size_t norm_scratch_bytes(const kernels::LayerNormBackwardArguments& arguments);
/// Gradients of layer norm where `mean` is given, else of RMS norm.
void layer_norm_backward(const kernels::LayerNormBackwardArguments& arguments, void* scratch,
                         StreamRef stream);

}  // namespace lockstep::cuda_kernels
