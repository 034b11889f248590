#pragma once

#include "arguments/row_scale.hpp"

namespace lockstep::cuda_kernels {

void row_scale(const kernels::RowScaleArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
