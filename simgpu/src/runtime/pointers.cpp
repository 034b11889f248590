#include "cuda_runtime_api.h"
#include "engine/entry.hpp"
#include "memory/allocations.hpp"
#include "memory/host_memory.hpp"

/// @file
/// What a pointer is.

namespace simgpu {
namespace {

/// Anywhere in an allocation, whatever a pool makes of it.
cudaPointerAttributes attributes_of(const void* address) {
  void* const data = const_cast<void*>(address);
  if (const auto host = HostMemory::instance().find(address))
    return {host->kind, host->device, data, data, {}};
  const auto found = is_tracked(address) ? Allocations::instance().find(address) : std::nullopt;
  if (found) return {cudaMemoryTypeDevice, found->block.device, data, nullptr, {}};
  constexpr int no_device = -2;
  return {cudaMemoryTypeUnregistered, no_device, nullptr, data, {}};
}

}  // namespace
}  // namespace simgpu

using simgpu::EntryPoint;
using simgpu::HostMemory;

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  static EntryPoint entry("cudaPointerGetAttributes");
  return entry.call([&] {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = simgpu::attributes_of(data);
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  static EntryPoint entry("cudaHostGetDevicePointer");
  return entry.call([&] {
    if (!device || flags != 0 || !HostMemory::instance().find(host)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  static EntryPoint entry("cudaHostGetFlags");
  return entry.call([&] {
    const auto found = HostMemory::instance().find(host);
    if (!flags || !found) return cudaErrorInvalidValue;
    *flags = found->flags;
    return cudaSuccess;
  });
}
