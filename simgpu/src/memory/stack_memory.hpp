#pragma once

/// @file
/// The host's stacks.

namespace simgpu {

/// True for memory of the calling thread's stack below `frame`, an address on it: what lay there
/// belonged to functions that have returned. False for what is not on the stack that the system
/// made for the thread.
bool is_left_stack(const void* address, const void* frame);

}  // namespace simgpu
