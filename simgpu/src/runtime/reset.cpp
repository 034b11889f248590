#include <vector>

#include "base/leaks.hpp"
#include "engine/device_variables.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "engine/machine.hpp"
#include "memory/allocations.hpp"

/// @file
/// The end of all that a program made on a device.

namespace simgpu {
namespace {

void destroy_streams_and_events(int device) {
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  for (CUstream_st* stream : machine.streams_of(device)) {
    if (stream->is_legacy) continue;
    object_destroyed("stream", stream);
    machine.destroy_stream(*stream);
  }
  for (CUevent_st* event : machine.events_of(device)) {
    object_destroyed("event", event);
    machine.destroy_event(*event);
  }
}

void free_all(int device) {
  for (const Allocation& allocation : Allocations::instance().live()) {
    const Block& block = allocation.block;
    if (block.kind != MemoryKind::device || block.device != device) continue;
    object_destroyed("allocation", block.data);
    forget_accesses(block.data, block.bytes);
    static_cast<void>(release(block.data, MemoryKind::device));
  }
}

cudaError_t reset(int device) {
  const cudaError_t status = synchronize_device(device);
  destroy_streams_and_events(device);
  free_all(device);
  forget_variables(device);
  return status;
}

}  // namespace
}  // namespace simgpu

extern "C" {

cudaError_t cudaDeviceReset() {
  static simgpu::EntryPoint entry("cudaDeviceReset", simgpu::Allowed::not_capturing);
  return entry.call([] { return simgpu::reset(simgpu::current_device()); });
}

}  // extern "C"
