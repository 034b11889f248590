#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/call_site.hpp"
#include "cuda_runtime_api.h"
#include "memory/layout.hpp"

/// @file
/// The memory of all devices: one reserved range of addresses, so that a pointer tells what it is.

namespace simgpu {

enum class MemoryKind : unsigned char { device, pinned };

/// An allocation, or the pool block inside one.
struct Block {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  MemoryKind kind = MemoryKind::device;
  bool is_pool_block = false;
  std::string name = {};  ///< given by name_memory; may be empty
  CallSite created = {};
};

/// Allocates zero-cost address space with guards on both sides. Fresh memory holds signalling NaNs
/// and counts as not initialised. @return cudaErrorMemoryAllocation past the device's size.
cudaError_t allocate(void** data, std::size_t bytes, int device, MemoryKind kind);
/// Checks the guards, poisons. The address range is not used again soon.
cudaError_t release(void* data, MemoryKind kind);

/// The bytes of a device that are not allocated.
std::size_t free_memory(int device);
std::size_t total_memory(int device);

/// The innermost block that holds the address (or that ends there, for one past the end); nothing
/// if it was freed or never was.
std::optional<Block> block_of(const void* address);
/// "block of 1024 bytes at 0x... + 128 ('bucket 0'), allocated by ...", or what was there before.
std::string describe_address(const void* address);
/// What held the address before the pool block that does now, if that was given out by a later call
/// than the one with this number (engine/host.hpp); empty otherwise.
std::string describe_former(const void* address, std::uint64_t call);

/// Looks at the guards of the live allocations and pool blocks of a device, or of all, and reports
/// those that were overwritten, once each: by the host, by a library, by a kernel that is not
/// watched.
void check_guards(std::optional<int> device = std::nullopt);
/// Fills damaged guards again without a word, after a report of what overwrote them.
void mend_guards();

/// Shadow of initialised bytes, of ranges of any size. What is not tracked is ignored.
void mark_initialized(const void* data, std::size_t bytes);
void mark_uninitialized(const void* data, std::size_t bytes);
/// Offset of the first byte that was never written; nothing if all were.
std::optional<std::size_t> first_uninitialized(const void* data, std::size_t bytes);

/// Names that reports use for memory ("bucket 0 (layers.0.weight)").
void name_memory(const void* data, std::size_t bytes, std::string name);

}  // namespace simgpu
