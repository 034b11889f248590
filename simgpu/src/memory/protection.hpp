#pragma once

#include <cstddef>

/// @file
/// Protection keys: rights to pages that each thread has or lacks (`device_side.hpp`).

namespace simgpu {

/// Whose pages they are.
enum class Owner : unsigned char {
  everyone,
  device,        ///< device memory: host threads have no right to it
  queued_device  ///< pinned memory that queued operations use
};

/// Marks whole, committed pages. Nothing happens where there are no protection keys.
void set_owner(void* pages, std::size_t bytes, Owner owner);

/// True while the calling thread has the rights of the device. In a signal handler it has none, so
/// the handler asks for the interrupted code: see fault_handler.cpp.
bool on_device_side();

/// The bits of the register of rights that deny the simulated GPU's keys; 0 without keys.
unsigned denying_rights();

}  // namespace simgpu
