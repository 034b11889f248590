#pragma once

#include "base/call_site.hpp"

/// @file
/// Turns the faults of host threads on device memory into reports, and ends kernels that fault.

namespace simgpu {

/// Takes over SIGSEGV, once; faults elsewhere go on to the handler that was there before.
void install_fault_handler();

/// What a kernel did that faulted.
struct KernelFault {
  const void* address;  ///< null where the processor does not tell
  const void* place;    ///< in the code, behind the instruction, as a return address
  bool writes;
  const CallSite* overflow;  ///< of the thread's stack: what it runs; null for other faults
  bool in_c_library;         ///< by a kernel's printf, say, which may hold locks
};

/// Who ends kernels that fault.
struct KernelFaultHandler {
  /// Whether the calling thread runs a kernel now. Called in the handler of the signal.
  bool (*runs_kernel)();
  /// Whether an address lies in a guard below the stack of a kernel's thread. Called there, too, by
  /// the thread that runs kernels.
  bool (*is_below_stack)(const void* address);
  /// Called in the kernel's stead, with its rights, after the signal: on its stack, or where that
  /// overflows on the one for signals. Does not return.
  void (*end)(const KernelFault& fault);
};

/// Faults of kernels go to `handler`, which must live as long as the process. Called by the thread
/// that runs them, which gets a stack for its signals.
void handle_kernel_faults(const KernelFaultHandler& handler);

}  // namespace simgpu
