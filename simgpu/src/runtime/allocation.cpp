#include "runtime/allocation.hpp"

#include <cstdint>
#include <string>

#include "base/faults.hpp"
#include "base/leaks.hpp"
#include "cuda_runtime_api.h"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "memory/address_space.hpp"
#include "memory/host_memory.hpp"
#include "runtime/pool_observer.hpp"

/// @file
/// Memory that lives until it is freed: cudaMalloc, cudaHostAlloc and what goes with them.

namespace simgpu {
namespace {

std::string detail_of(std::size_t bytes, const char* where) {
  return std::to_string(bytes) + " bytes of " + where;
}

cudaError_t allocate_device(void** data, std::size_t bytes) {
  if (!data) return cudaErrorInvalidValue;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  observe_pools();
  const int device = current_device();
  const std::size_t used = total_memory(device) - free_memory(device);
  if (faults().out_of_memory(used + bytes)) return cudaErrorMemoryAllocation;
  const cudaError_t status = allocate(data, bytes, device, MemoryKind::device);
  if (status != cudaSuccess) return status;
  forget_accesses(*data, bytes);
  object_created("allocation", *data, detail_of(bytes, "device memory"));
  return status;
}

cudaError_t free_pinned(void* data);

bool is_managed(const void* data) {
  const auto range = HostMemory::instance().find(data);
  return range && range->kind == cudaMemoryTypeManaged;
}

/// Waits for the device first, as the real one does: what is queued may use the memory.
cudaError_t free_device(void* data) {
  if (!data) return cudaSuccess;
  if (is_managed(data)) return free_pinned(data);
  if (is_tracked(data) && slot_of(data) != Layout::pinned_slot) {
    const cudaError_t status = synchronize_device(slot_of(data));
    if (status != cudaSuccess) return status;
  }
  object_destroyed("allocation", data);
  return release(data, MemoryKind::device);
}

cudaError_t free_pinned(void* data) {
  if (!data) return cudaSuccess;
  if (const auto block = block_of(data); block && block->kind == MemoryKind::pinned) {
    const cudaError_t status = synchronize_device(block->device);
    if (status != cudaSuccess) return status;
  }
  if (is_tracked(data)) HostMemory::instance().remove(data);
  object_destroyed("allocation", data);
  return release(data, MemoryKind::pinned);
}

/// Whether the real one waits for work that uses the memory is not promised: a finding.
cudaError_t free_host(void* data) {
  if (const auto block = block_of(data); block && block->kind == MemoryKind::pinned)
    check_given_back("cudaFreeHost", block->data, block->bytes, CallSite::here());
  return free_pinned(data);
}

cudaError_t register_host(void* data, std::size_t bytes, unsigned flags) {
  if (!data || bytes == 0 || is_tracked(data)) return cudaErrorInvalidValue;
  return HostMemory::instance().add({data, bytes, current_device(), flags});
}

cudaError_t unregister_host(void* data) {
  if (!data || is_tracked(data)) return cudaErrorInvalidValue;
  const auto range = HostMemory::instance().find(data);
  if (!range || range->data != data) return cudaErrorHostMemoryNotRegistered;
  check_given_back("cudaHostUnregister", data, range->bytes, CallSite::here());
  HostMemory::instance().remove(data);
  return cudaSuccess;
}

}  // namespace

cudaError_t allocate_host_side(void** data, std::size_t bytes, unsigned flags,
                               cudaMemoryType kind) {
  constexpr unsigned known =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (!data || (flags & ~known) != 0) return cudaErrorInvalidValue;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  observe_pools();
  const cudaError_t status = allocate(data, bytes, current_device(), MemoryKind::pinned);
  if (status != cudaSuccess) return status;
  forget_accesses(*data, bytes);
  const bool is_managed = kind == cudaMemoryTypeManaged;
  object_created("allocation", *data,
                 detail_of(bytes, is_managed ? "managed memory" : "pinned host memory"));
  return HostMemory::instance().add({*data, bytes, current_device(), flags, kind});
}

}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  static EntryPoint entry("cudaMalloc", Allowed::not_capturing);
  return entry.call([&] { return simgpu::allocate_device(data, bytes); });
}

cudaError_t cudaFree(void* data) {
  static EntryPoint entry("cudaFree", Allowed::not_capturing);
  return entry.call([&] { return simgpu::free_device(data); });
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  static EntryPoint entry("cudaMallocHost", Allowed::not_capturing);
  return entry.call([&] {
    return simgpu::allocate_host_side(data, bytes, cudaHostAllocDefault, cudaMemoryTypeHost);
  });
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags) {
  static EntryPoint entry("cudaHostAlloc", Allowed::not_capturing);
  return entry.call(
      [&] { return simgpu::allocate_host_side(data, bytes, flags, cudaMemoryTypeHost); });
}

cudaError_t cudaFreeHost(void* data) {
  static EntryPoint entry("cudaFreeHost", Allowed::not_capturing);
  return entry.call([&] { return simgpu::free_host(data); });
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags) {
  static EntryPoint entry("cudaHostRegister", Allowed::not_capturing);
  return entry.call([&] { return simgpu::register_host(data, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* data) {
  static EntryPoint entry("cudaHostUnregister", Allowed::not_capturing);
  return entry.call([&] { return simgpu::unregister_host(data); });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  static EntryPoint entry("cudaMemGetInfo");
  return entry.call([&] {
    if (!free || !total) return cudaErrorInvalidValue;
    *free = simgpu::free_memory(simgpu::current_device());
    *total = simgpu::total_memory(simgpu::current_device());
    return cudaSuccess;
  });
}
