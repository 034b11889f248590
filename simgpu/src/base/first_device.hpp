#pragma once

/// @file
/// Which of the host's devices this process sees.

namespace simgpu {

/// The host's number of the device that this process counts as its first
/// (LOCKSTEP_SIM_FIRST_DEVICE).
int first_device();

}  // namespace simgpu
