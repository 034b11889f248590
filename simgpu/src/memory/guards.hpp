#pragma once

#include <cstddef>

#include "memory/allocations.hpp"

/// @file
/// The bytes around an allocation.

namespace simgpu {

/// Writes the guards on both sides, to the ends of the allocation's pages.
void fill_guards(const Allocation& allocation);

/// The first byte of the guards that was overwritten, or null.
const std::byte* damaged_guard(const Allocation& allocation);

}  // namespace simgpu
