#pragma once

#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep {

/// The CUDA runtime's side of the seam, or null in a build without CUDA (`no_cuda.cpp`).
DeviceRuntime* cuda_runtime();

/// Copies bytes from a GPU to that of the stream, in its order, whatever kind of memory they lie
/// in: memory that is mapped (LOCKSTEP_POOL=growable) is open to its own GPU alone.
void copy_between_gpus(void* to, const void* from, Device from_device, std::size_t bytes,
                       StreamRef stream);

/// Puts a runtime in place of a kind's own, for tests; null brings the own one back. No stream or
/// event of the kind may be alive. @return what was in place before, null for the own one.
DeviceRuntime* replace_device_runtime(DeviceType type, DeviceRuntime* runtime);

}  // namespace lockstep
