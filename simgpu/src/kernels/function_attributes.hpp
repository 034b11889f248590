#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_launch.hpp"

/// @file
/// What programs set for a kernel by cudaFuncSetAttribute.

namespace simgpu {

/// Bytes of dynamic shared memory that a launch of the kernel may ask for. Any thread.
std::size_t dynamic_shared_limit(const void* kernel);

/// How many blocks of a launch the device runs at once, as far as threads and dynamic shared memory
/// tell; at least 1.
std::uint64_t blocks_at_once(const LaunchShape& shape);

}  // namespace simgpu
