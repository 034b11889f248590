#pragma once

#include "arguments/optimizer.hpp"

namespace lockstep::backend {

/// The optimizers of the CPU.
const kernels::OptimizerKernels& cpu_optimizers();

}  // namespace lockstep::backend
