#pragma once

#include <optional>

#include "base/call_site.hpp"

/// @file
/// Where kernel<<<...>>>() stands.

namespace simgpu {

/// The place of the launch that this thread is in; nothing for cudaLaunchKernelEx.
std::optional<CallSite> take_launch_site();

}  // namespace simgpu
