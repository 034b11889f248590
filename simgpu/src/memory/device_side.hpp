#pragma once

/// @file
/// Which threads may touch device memory: the host's may not, the executor may. An access of the
/// host faults, by one of two ways (base/options.hpp: `HostWatch`).

namespace simgpu {

enum class HostWatch : unsigned char;

/// The way in which accesses of the host are caught here: the one that was asked for, and in the
/// place of keys the protection of pages where the machine has no keys.
HostWatch host_watch();

/// True for threads that may touch device memory now.
bool on_device_side();

/// Gives the calling thread, and the threads that it starts from now on, the rights of the device:
/// the executor calls it first thing.
void enter_device_side();
/// Takes these rights from the calling thread.
void leave_device_side();
/// The device rests: pages that were opened for it are closed to the host again. On any thread.
void rest_device_side();

/// The rights of the device for a scope, for a host call that works on device memory itself.
class DeviceSideScope {
 public:
  DeviceSideScope();
  DeviceSideScope(const DeviceSideScope&) = delete;
  DeviceSideScope& operator=(const DeviceSideScope&) = delete;
  ~DeviceSideScope();

 private:
  const DeviceSideScope* around_;
  unsigned rights_;
};

/// Tests: a host access to device memory is reported and then let through, instead of ending the
/// process. The thread keeps the device's rights until it calls `leave_device_side`.
void let_host_accesses_through(bool let);

}  // namespace simgpu
