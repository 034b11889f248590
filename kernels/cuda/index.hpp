#pragma once

#include "arguments/index.hpp"

namespace lockstep::cuda_kernels {

void gather(const kernels::GatherArguments& arguments, StreamRef stream);
void scatter_add(const kernels::ScatterAddArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
