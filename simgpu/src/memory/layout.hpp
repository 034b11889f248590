#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Where the memory of the simulated devices lies: fixed addresses, so that a pointer tells what it
/// is by arithmetic alone and reports of two runs show the same addresses.

namespace simgpu {

/// The addresses of all memory: one slot for each device, then one for pinned host memory.
struct Layout {
  static constexpr int max_devices = 16;
  static constexpr int pinned_slot = max_devices;
  static constexpr unsigned slot_bits = 38;
  static constexpr std::size_t slot_bytes = std::size_t{1} << slot_bits;
  static constexpr std::uintptr_t begin = 0x2000'0000'0000;
  static constexpr std::size_t bytes = (max_devices + 1) * slot_bytes;

  /// One bit a byte each: was it written, does it belong to a live block. Bit (address & 7) of the
  /// byte at base + (address - begin) / 8.
  static constexpr std::uintptr_t initialized_bits = 0x3000'0000'0000;
  static constexpr std::uintptr_t live_bits = 0x3800'0000'0000;
  /// Windows of eight bytes may reach over the end.
  static constexpr std::size_t bits_bytes = bytes / 8 + 4096;
};

/// An address as a number.
inline std::uintptr_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

/// True for addresses that belong to any device or to pinned memory, allocated or not.
inline bool is_tracked(const void* address) {
  return number_of(address) - Layout::begin < Layout::bytes;
}

/// The device of a tracked address, or Layout::pinned_slot.
inline int slot_of(const void* address) {
  return static_cast<int>((number_of(address) - Layout::begin) >> Layout::slot_bits);
}

}  // namespace simgpu
