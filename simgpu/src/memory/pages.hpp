#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Whole pages.

namespace simgpu {

inline constexpr std::size_t page_bytes = 4096;

/// The beginning of the page that holds an address.
constexpr std::uintptr_t round_down_to_page(std::uintptr_t address) {
  return address & ~(page_bytes - 1);
}
/// The first beginning of a page at or after an address.
constexpr std::uintptr_t round_up_to_page(std::uintptr_t address) {
  return round_down_to_page(address + page_bytes - 1);
}

}  // namespace simgpu
