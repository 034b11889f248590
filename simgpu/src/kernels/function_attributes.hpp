#pragma once

#include <cstddef>

/// @file
/// What programs set for a kernel by cudaFuncSetAttribute.

namespace simgpu {

/// Bytes of dynamic shared memory that a launch of the kernel may ask for. Any thread.
std::size_t dynamic_shared_limit(const void* kernel);

}  // namespace simgpu
