#pragma once

#include "arguments/pooling.hpp"

/// @file
/// Pooling of channels-last images, all channels of a position at once. Each function returns false
/// where an operand lies in another order, and does nothing then.

namespace lockstep::cpu_kernels {

bool max_pixels(const kernels::MaxPoolArguments& arguments);
bool max_pixels_backward(const kernels::MaxPoolBackwardArguments& arguments);
bool average_pixels(const kernels::AveragePoolArguments& arguments);
bool average_pixels_backward(const kernels::AveragePoolBackwardArguments& arguments);

}  // namespace lockstep::cpu_kernels
