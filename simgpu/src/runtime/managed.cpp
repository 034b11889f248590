#include <cstddef>

#include "cuda_runtime_api.h"
#include "engine/entry.hpp"
#include "memory/host_memory.hpp"
#include "runtime/allocation.hpp"

/// @file
/// Managed memory: here it is pinned memory that cudaFree frees. It does not move.

namespace simgpu {
namespace {

bool is_known(cudaMemLocation location) {
  return location.type == cudaMemLocationTypeHost || location.type == cudaMemLocationTypeDevice;
}

cudaError_t check_range(const void* data, std::size_t bytes, cudaMemLocation location) {
  const auto range = HostMemory::instance().find(data);
  if (!range || range->kind != cudaMemoryTypeManaged || bytes == 0) return cudaErrorInvalidValue;
  return is_known(location) ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace
}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

cudaError_t cudaMallocManaged(void** data, std::size_t bytes, unsigned flags) {
  static EntryPoint entry("cudaMallocManaged", Allowed::not_capturing);
  return entry.call([&] {
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) return cudaErrorInvalidValue;
    return simgpu::allocate_host_side(data, bytes, 0, cudaMemoryTypeManaged);
  });
}

cudaError_t cudaMemAdvise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
  static EntryPoint entry("cudaMemAdvise");
  return entry.call([&] {
    if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy)
      return cudaErrorInvalidValue;
    return simgpu::check_range(data, bytes, location);
  });
}

cudaError_t cudaMemPrefetchAsync(const void* data, std::size_t bytes, cudaMemLocation location,
                                 unsigned flags, cudaStream_t) {
  static EntryPoint entry("cudaMemPrefetchAsync");
  return entry.call([&] {
    return flags == 0 ? simgpu::check_range(data, bytes, location) : cudaErrorInvalidValue;
  });
}
