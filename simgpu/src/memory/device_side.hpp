#pragma once

/// @file
/// Which threads may touch device memory. Protection keys are rights of a thread: host threads have
/// none, the executor has all.

namespace simgpu {

/// True where the platform lets host accesses be caught.
bool host_accesses_are_caught();

/// Gives the calling thread, and the threads that it starts from now on, the rights of the device:
/// the executor calls it first thing.
void enter_device_side();
/// Takes these rights from the calling thread.
void leave_device_side();

/// The rights of the device for a scope, for a host call that works on device memory itself.
class DeviceSideScope {
 public:
  DeviceSideScope();
  DeviceSideScope(const DeviceSideScope&) = delete;
  DeviceSideScope& operator=(const DeviceSideScope&) = delete;
  ~DeviceSideScope();

 private:
  unsigned previous_;
};

/// Tests: a host access to device memory is reported and then let through, instead of ending the
/// process. The thread keeps the device's rights until it calls `leave_device_side`.
void let_host_accesses_through(bool let);

}  // namespace simgpu
