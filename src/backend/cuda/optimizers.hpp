#pragma once

#include "arguments/optimizer.hpp"

namespace lockstep::backend {

/// The optimizers of GPUs.
const kernels::OptimizerKernels& cuda_optimizers();

}  // namespace lockstep::backend
