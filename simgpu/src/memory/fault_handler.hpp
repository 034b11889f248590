#pragma once

/// @file
/// Turns the faults of host threads on device memory into reports.

namespace simgpu {

/// Takes over SIGSEGV, once; faults elsewhere go on to the handler that was there before.
void install_fault_handler();

}  // namespace simgpu
