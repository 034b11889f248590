#pragma once

#include <optional>

#include "lockstep/core/error.hpp"
#include "runtime/cuda/device_guard.hpp"
#include "runtime/step_recording.hpp"

/// @file
/// What calls of the driver for memory have in common.

namespace lockstep {

/// A captured step has to find in the pool what it needs.
inline void refuse_memory_while_capturing() {
  if (StepRecording* recording = StepRecording::current()) [[unlikely]] {
    recording->suggest_another_try();
    refuse_in_captured_step("memory is wanted of the driver", "the pool must have enough before");
  }
}

/// Gives something back with the device current. A device that cannot be made so has failed, and
/// its memory went with it.
/// @param device none: any will do
template <class Call>
void on_device(std::optional<int> device, Call call) noexcept {
  try {
    const CudaDeviceGuard guard(device ? *device : CudaDeviceGuard::any_device());
    call();
  } catch (const CudaError&) {
    // As said above.
  }
}

}  // namespace lockstep
