#pragma once

#include "arguments/random.hpp"

namespace lockstep::host {

void uniform(const kernels::UniformArguments& arguments, StreamRef stream);
void normal(const kernels::NormalArguments& arguments, StreamRef stream);
void dropout(const kernels::DropoutArguments& arguments, StreamRef stream);
void set_place(const kernels::SetPlaceArguments& arguments, StreamRef stream);

}  // namespace lockstep::host
