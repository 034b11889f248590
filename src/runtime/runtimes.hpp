#pragma once

#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep {

/// The CUDA runtime's side of the seam, or null in a build without CUDA (`no_cuda.cpp`).
DeviceRuntime* cuda_runtime();

/// Puts a runtime in place of a kind's own, for tests; null brings the own one back. No stream or
/// event of the kind may be alive. @return what was in place before, null for the own one.
DeviceRuntime* replace_device_runtime(DeviceType type, DeviceRuntime* runtime);

}  // namespace lockstep
