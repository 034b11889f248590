#pragma once

#include "arguments/index.hpp"

namespace lockstep::host {

void gather(const kernels::GatherArguments& arguments, StreamRef stream);
void scatter_add(const kernels::ScatterAddArguments& arguments, StreamRef stream);

}  // namespace lockstep::host
