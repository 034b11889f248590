#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

/// @file
/// Ranges of the two maps that hold one bit for each byte of memory (layout.hpp).

namespace simgpu {

/// Sets or clears the bits of a tracked range in the map that begins at `map`.
void set_bits(std::uintptr_t map, const void* data, std::size_t bytes, bool value);

/// The same for a whole allocation: pages of the map that lie in a long range are not touched.
void set_bits_of_allocation(std::uintptr_t map, const void* data, std::size_t bytes, bool value);

/// Offset of the first byte whose bit is clear; nothing if all are set.
std::optional<std::size_t> first_clear_bit(std::uintptr_t map, const void* data, std::size_t bytes);

/// Gives the bytes at `to` the bits of those at `from`.
void copy_bits(std::uintptr_t map, const void* to, const void* from, std::size_t bytes);

}  // namespace simgpu
