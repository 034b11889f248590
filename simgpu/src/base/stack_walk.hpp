#pragma once

#include <cstddef>
#include <span>

/// @file
/// The return addresses of the calling thread.

namespace simgpu {

/// Writes the return addresses of a call, innermost first; the first are this function's own.
/// Unwinding costs 0.2 us a frame and more, and most calls of a thread have their outer frames in
/// common with the last one: those are taken from there, once it is seen that their return
/// addresses still lie where they lay.
/// @return how many there are, at most as many as fit
std::size_t walk_stack(std::span<void*> frames) noexcept;

}  // namespace simgpu
