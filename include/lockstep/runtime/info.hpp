#pragma once

#include <vector>

#include "lockstep/core/component.hpp"

/// @file
/// Which devices this process may use, and by what.

namespace lockstep {

/// Number of usable CUDA devices: 0 in a build without CUDA or on a machine without a GPU.
int cuda_device_count();

/// The libraries behind devices: CUDA's runtime and driver ("none" without one), in a build with
/// it.
std::vector<Component> runtime_components();

}  // namespace lockstep
