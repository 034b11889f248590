#pragma once

#include <functional>

/// @file
/// Functions of the program that are queued on streams (cudaLaunchHostFunc).

namespace simgpu {

/// An operation's `run` that calls a function on a thread which is neither the host's nor the
/// executor: a function that blocks holds up its own stream alone. The function knows what the
/// operation follows, and may not call the runtime.
std::function<bool()> on_callback_thread(std::function<void()> function);

}  // namespace simgpu
