#pragma once

/// @file
/// Whether a program gives the same bits each time.

namespace lockstep {

/// Lets all ops of the process take only algorithms that give the same bits each time they are
/// given the same, on any thread, from now on; steps that were captured keep what they have. Off at
/// first, as PyTorch's `use_deterministic_algorithms`: attention's gradient on a GPU, the one op
/// that knows another, is faster without and takes memory that grows with the square of the
/// sequence with it. What NCCL sums inside NVSwitches (NVLS) is the same on all ranks, but may
/// differ between two runs: NCCL_NVLS_ENABLE=0 turns that off.
void set_deterministic_algorithms(bool deterministic) noexcept;

/// What was set last.
bool deterministic_algorithms() noexcept;

}  // namespace lockstep
