#pragma once

#include "arguments/reduction.hpp"

/// @file
/// Reductions that find, order or follow the elements of lines along a dimension.

namespace lockstep::host {

void arg_extreme(const kernels::ArgExtremeArguments& arguments, StreamRef stream);
void cumsum(const kernels::CumsumArguments& arguments, StreamRef stream);
void topk(const kernels::TopkArguments& arguments, StreamRef stream);

}  // namespace lockstep::host
