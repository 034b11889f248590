#pragma once

#include "arguments/reduction.hpp"

namespace lockstep::host {

/// Work is split by the size of the operands, never by the number of threads, so the result has the
/// same bits at any thread count.
void reduce(const kernels::ReduceArguments& arguments, StreamRef stream);

}  // namespace lockstep::host
