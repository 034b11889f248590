#pragma once

/// @file
/// Facts about the simulated devices.

namespace simgpu {

inline constexpr int least_priority = 0;
inline constexpr int greatest_priority = -5;

/// True if there is such a device.
bool exists(int device);

}  // namespace simgpu
