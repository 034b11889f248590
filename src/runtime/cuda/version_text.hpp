#pragma once

#include <string>

/// @file
/// CUDA's version numbers as people write them.

namespace lockstep {

/// "13.0" for 13000.
inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The oldest driver whose GPUs are used: kernels here have more than 4 KiB of arguments, which
/// came with CUDA 12.1 (R530). Programs of a later 12 start with an older driver, too, and would
/// fail at an optimizer's first step.
inline constexpr int oldest_driver = 12010;

/// Why GPUs are not used with a driver that could serve the runtime; empty if they are.
inline std::string shortcoming_of_driver(int driver) {
  if (driver >= oldest_driver) return {};
  return "the driver is for CUDA " + version_text(driver) + ", the oldest that serves for " +
         version_text(oldest_driver) + ": update the driver";
}

}  // namespace lockstep
