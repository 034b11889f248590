#pragma once

#include "arguments/row_scale.hpp"

namespace lockstep::host {

void row_scale(const kernels::RowScaleArguments& arguments, StreamRef stream);

}  // namespace lockstep::host
