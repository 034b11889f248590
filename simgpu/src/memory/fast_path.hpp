#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memory/layout.hpp"

/// @file
/// What every memory access of a kernel asks, inline and without a look-up.
///
/// All of it speaks of the *device's* view, in which pool blocks come and go in stream order, and
/// is for the executor thread. The addresses must be tracked (`is_tracked`). Where an answer is no,
/// `problem_of` (access_check.hpp) says why.

namespace simgpu {

namespace detail {

inline std::uint32_t window_of(std::uintptr_t base, std::uintptr_t address) {
  std::uint32_t window;
  std::memcpy(&window, reinterpret_cast<const void*>(base + ((address - Layout::begin) >> 3)),
              sizeof window);
  return window;
}

/// The bits of `bytes` bytes, in a window that begins at the address rounded down to 8.
inline std::uint32_t mask_of(std::uintptr_t address, unsigned bytes) {
  return ((std::uint32_t{1} << bytes) - 1) << (address & 7);
}

}  // namespace detail

/// True if all of `bytes` (1 to 16) bytes lie in live blocks and were written before.
inline bool is_readable(const void* data, unsigned bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uint32_t mask = detail::mask_of(address, bytes);
  return (detail::window_of(Layout::initialized_bits, address) & mask) == mask;
}

/// True if all of `bytes` (1 to 16) bytes lie in live blocks.
inline bool is_writable(const void* data, unsigned bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uint32_t mask = detail::mask_of(address, bytes);
  return (detail::window_of(Layout::live_bits, address) & mask) == mask;
}

/// Notes that `bytes` (1 to 16) bytes of live blocks were written.
inline void set_initialized(const void* data, unsigned bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uint32_t mask = detail::mask_of(address, bytes);
  const std::uint32_t window = detail::window_of(Layout::initialized_bits, address);
  if ((window & mask) == mask) return;
  const std::uint32_t changed = window | mask;
  std::memcpy(reinterpret_cast<void*>(Layout::initialized_bits + ((address - Layout::begin) >> 3)),
              &changed, sizeof changed);
}

/// The live block that an address lies in, kept by the caller from one access to the next. Valid
/// while one operation runs: nothing that it may touch is handed out or taken back meanwhile.
struct LiveRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  bool holds(std::uintptr_t address, std::size_t bytes) const {
    return address >= begin && address + bytes <= end;
  }
};

/// The bounds of the innermost live block that holds the address: of the pool block if the
/// allocation belongs to a pool, else of the allocation. Empty if there is none. Takes a lock.
LiveRange find_live_range(const void* address);

/// True if the access lies in one live block, which `cache` then holds.
inline bool in_live_range(const void* data, std::size_t bytes, LiveRange& cache) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (cache.holds(address, bytes)) [[likely]]
    return true;
  cache = find_live_range(data);
  return cache.holds(address, bytes);
}

}  // namespace simgpu
