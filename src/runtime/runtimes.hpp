#pragma once

#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep {

/// The CUDA runtime's side of the seam, or null in a build without CUDA (`no_cuda.cpp`).
DeviceRuntime* cuda_runtime();

}  // namespace lockstep
