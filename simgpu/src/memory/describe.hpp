#pragma once

#include <string>

#include "memory/allocations.hpp"
#include "memory/block_table.hpp"

/// @file
/// Memory in words, for reports.

namespace simgpu {

/// "block of 1024 bytes at 0x... + 128 ('bucket 0') of device 0, allocated by ...".
std::string describe_in(const Block& block, const void* address);
/// The same of an allocation that was freed, and where.
std::string describe_freed(const Allocation& allocation, const void* address);
/// The same of a block that its pool has back.
std::string describe_returned(const PoolBlock& block, const void* address);

}  // namespace simgpu
