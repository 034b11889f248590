#pragma once

#include "arguments/order.hpp"

namespace lockstep::host {

void argsort(const kernels::ArgsortArguments& arguments, StreamRef stream);
void search(const kernels::SearchArguments& arguments, StreamRef stream);

}  // namespace lockstep::host
