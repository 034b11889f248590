#pragma once

#include <cstddef>

/// @file
/// Which pages the host must not touch, by whatever means the machine has (`device_side.hpp`).

namespace simgpu {

/// Whose pages they are.
enum class Owner : unsigned char {
  everyone,
  device,        ///< device memory: host threads have no right to it
  queued_device  ///< pinned memory that queued operations use
};

/// Marks whole, committed pages.
void set_owner(void* pages, std::size_t bytes, Owner owner);
/// Says that pages are about to lose their memory.
void forget_owner(void* pages, std::size_t bytes);

/// Lets the calling thread of the device's side touch a page of the device, on which it faulted.
/// @return false if the fault has another reason.
bool open_to_device(const void* address);

}  // namespace simgpu
