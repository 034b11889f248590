#pragma once

#include <functional>

/// @file
/// What captured steps wait for, which ask for the memory of tensors once and then never again.

namespace lockstep {

/// Lets `wait` be called by each `wait_at_gates` of the calling thread, until `leave_gate`.
/// @param gate any address, which names it.
void enter_gate(const void* gate, std::function<void()> wait);
/// Ends that, on any thread.
void leave_gate(const void* gate) noexcept;
/// Calls those of the calling thread.
void wait_at_gates();

}  // namespace lockstep
