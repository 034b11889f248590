#pragma once

#include "arguments/pooling.hpp"

/// @file
/// Means of whole planes, which lie one behind another: rows, then. Each function returns false
/// where there are other windows or an operand lies otherwise, and does nothing then.

namespace lockstep::cpu_kernels {

bool average_planes(const kernels::AveragePoolArguments& arguments);
bool average_planes_backward(const kernels::AveragePoolBackwardArguments& arguments);

}  // namespace lockstep::cpu_kernels
