#pragma once

#include "arguments/optimizer.hpp"
#include "backend/backend.hpp"

namespace lockstep::backend {

/// The optimizers of the backend that runs ops on a device.
inline const kernels::OptimizerKernels& optimizers_of(Device device) {
  return *of(device).optimizers;
}

}  // namespace lockstep::backend
