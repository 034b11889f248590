#pragma once

/// @file
/// Turns the faults of host threads on device memory into reports, and ends kernels that fault.

namespace simgpu {

/// Takes over SIGSEGV, once; faults elsewhere go on to the handler that was there before.
void install_fault_handler();

/// What a kernel did that faulted.
struct KernelFault {
  const void* address;  ///< null where the processor does not tell
  const void* place;    ///< in the code
  bool writes;
};

/// Who ends kernels that fault.
struct KernelFaultHandler {
  /// Whether the calling thread runs a kernel now. Called in the handler of the signal.
  bool (*runs_kernel)();
  /// Called in the kernel's stead, on its stack and with its rights, after the signal. Does not
  /// return.
  void (*end)(const KernelFault& fault);
};

/// Faults of kernels go to `handler`, which must live as long as the process.
void handle_kernel_faults(const KernelFaultHandler& handler);

}  // namespace simgpu
