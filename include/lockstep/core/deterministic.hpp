#pragma once

/// @file
/// Whether a program gives the same bits each time.

namespace lockstep {

/// Lets all ops of the process take only algorithms that give the same bits each time they are
/// given the same, on any thread, from now on; steps that were captured keep what they have. Off at
/// first, as PyTorch's `use_deterministic_algorithms`. On a GPU attention's gradient is faster
/// without, and takes memory that grows with the square of the sequence with it; and
/// without products take the kernel that was measured as the fastest (`LOCKSTEP_TUNED_PRODUCTS`),
/// or one that their operands' place in memory allows. Other ops know but one way. What NCCL sums
/// inside NVSwitches (NVLS) is the same on all ranks, but may differ between two runs:
/// NCCL_NVLS_ENABLE=0 turns that off.
void set_deterministic_algorithms(bool deterministic) noexcept;

/// What was set last.
bool deterministic_algorithms() noexcept;

}  // namespace lockstep
