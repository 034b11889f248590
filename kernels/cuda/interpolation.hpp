#pragma once

#include "arguments/interpolation.hpp"

/// @file
/// Resizing of images.

namespace lockstep::cuda_kernels {

void interpolate(const kernels::InterpolationArguments& arguments, StreamRef stream);
void interpolate_backward(const kernels::InterpolationBackwardArguments& arguments,
                          StreamRef stream);

}  // namespace lockstep::cuda_kernels
