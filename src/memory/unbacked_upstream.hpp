#pragma once

#include <cstddef>

#include "memory/paged_upstream.hpp"

/// @file
/// Upstreams of addresses without memory, for pools that are measured and not used: what they give
/// must be neither read nor written.

namespace lockstep {

/// Pages that take no memory.
struct UnbackedPages {
  static std::size_t page_bytes() { return HostVirtualMemory::page; }
  static void* reserve(std::size_t bytes) { return HostVirtualMemory::reserve(bytes); }
  static bool map(void*, std::size_t) { return true; }
  static void unmap(void*, std::size_t) noexcept {}
  static void release(void* at, std::size_t bytes) noexcept {
    HostVirtualMemory::release(at, bytes);
  }
};

/// Segments that take no memory, each of its own size.
struct UnbackedUpstream {
  static void* allocate(std::size_t bytes) { return UnbackedPages::reserve(bytes); }
  static void deallocate(void* data, std::size_t bytes) noexcept {
    UnbackedPages::release(data, bytes);
  }
};

}  // namespace lockstep
