#pragma once

#include <string>
#include <vector>

#include "nccl/call.hpp"

/// @file
/// Buffers of NCCL's calls that lie over each other.

namespace simgpu::nccl {

/// What the calls of a group read and write at the same addresses, as text; empty if nothing. NCCL
/// takes a call as one in place only where both buffers begin as its documents say; everything else
/// is computed as if they were apart, and comes out wrong without an error.
std::string overlap_of(const std::vector<Arguments>& calls, int rank, int size);

/// The first buffer at an address that is no multiple of its elements' size, as text; empty if
/// there is none. NCCL's kernels read whole elements.
std::string misaligned_of(const std::vector<Arguments>& calls, int rank, int size);

}  // namespace simgpu::nccl
