#pragma once

/// @file
/// Which devices may use memory of which others. Any thread.

namespace simgpu {

/// Lets a device use a peer's memory, or no more (cudaDeviceEnablePeerAccess). @return what it was.
bool set_peer_access(int device, int peer, bool enabled);
/// True if kernels of the device may use the memory at a tracked address: its own, pinned memory,
/// and that of peers which it was given access to. Mapped memory is its own device's alone
/// (virtual_memory.hpp).
bool can_reach(int device, const void* address);

}  // namespace simgpu
