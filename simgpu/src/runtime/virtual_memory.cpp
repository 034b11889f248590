#include "memory/virtual_memory.hpp"

#include <string>

#include "base/faults.hpp"
#include "base/leaks.hpp"
#include "base/options.hpp"
#include "cuda.h"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "memory/address_space.hpp"
#include "memory/names.hpp"
#include "runtime/device.hpp"
#include "runtime/pool_observer.hpp"

/// @file
/// The driver's functions for the virtual memory of devices.

namespace simgpu {
namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

/// Handles are numbers; the registry of leaks knows addresses.
const void* identity(CUmemGenericAllocationHandle handle) { return pointer(handle); }

/// Why memory of such properties cannot be had here.
CUresult refusal(const CUmemAllocationProp* properties) {
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->win32HandleMetaData)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties->allocFlags.compressionType != 0 || properties->allocFlags.usage != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  return exists(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                 unsigned long long flags) {
  if (!address || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  observe_pools();
  const CUresult status =
      VirtualMemory::instance().reserve(address, bytes, alignment, current_device());
  if (status == CUDA_SUCCESS)
    object_created("address range", pointer(*address), std::to_string(bytes) + " bytes");
  return status;
}

CUresult free_addresses(CUdeviceptr address, std::size_t bytes) {
  const CUresult status = VirtualMemory::instance().free_addresses(address, bytes);
  if (status == CUDA_SUCCESS) object_destroyed("address range", pointer(address));
  return status;
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long flags) {
  if (!handle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refusal(properties); refused != CUDA_SUCCESS) return refused;
  const int device = properties->location.id;
  const std::size_t used = total_memory(device) - free_memory(device);
  if (faults().out_of_memory(used + bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult status = VirtualMemory::instance().create(handle, bytes, device);
  if (status == CUDA_SUCCESS)
    object_created("memory handle", identity(*handle), std::to_string(bytes) + " bytes");
  return status;
}

CUresult release_handle(CUmemGenericAllocationHandle handle) {
  const CUresult status = VirtualMemory::instance().release(handle);
  if (status == CUDA_SUCCESS) object_destroyed("memory handle", identity(handle));
  return status;
}

CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult status = VirtualMemory::instance().map(address, bytes, handle);
  if (status != CUDA_SUCCESS) return status;
  forget_accesses(pointer(address), bytes);
  return status;
}

/// Does not wait for work that uses the memory: the driver's may, and promises nothing.
CUresult unmap(CUdeviceptr address, std::size_t bytes) {
  if (!VirtualMemory::instance().is_mapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  host_access(pointer(address), bytes, true, CallSite::here());
  Names::instance().forget(pointer(address), bytes);
  return VirtualMemory::instance().unmap(address, bytes);
}

CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                    std::size_t count) {
  if (!access || count == 0 || !VirtualMemory::instance().is_mapped(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  bool is_own = false;
  for (std::size_t i = 0; i < count; ++i) {
    const CUmemLocation where = access[i].location;
    if (where.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!exists(where.id)) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_NOT_SUPPORTED;
    is_own |= where.id == slot_of(pointer(address));
  }
  return is_own ? VirtualMemory::instance().open(address, bytes) : CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using simgpu::EntryPoint;

CUresult cuMemGetAllocationGranularity(std::size_t* granularity,
                                       const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  static EntryPoint entry("cuMemGetAllocationGranularity");
  return entry.call([&] {
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
      return CUDA_ERROR_INVALID_VALUE;
    const CUresult refused = simgpu::refusal(properties);
    if (refused == CUDA_SUCCESS) *granularity = simgpu::VirtualMemory::granularity;
    return refused;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                             CUdeviceptr, unsigned long long flags) {
  static EntryPoint entry("cuMemAddressReserve");
  return entry.call([&] { return simgpu::reserve(address, bytes, alignment, flags); });
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  static EntryPoint entry("cuMemAddressFree");
  return entry.call([&] { return simgpu::free_addresses(address, bytes); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  static EntryPoint entry("cuMemCreate");
  return entry.call([&] { return simgpu::create(handle, bytes, properties, flags); });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  static EntryPoint entry("cuMemRelease");
  return entry.call([&] { return simgpu::release_handle(handle); });
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  static EntryPoint entry("cuMemMap");
  return entry.call([&] { return simgpu::map(address, bytes, offset, handle, flags); });
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  static EntryPoint entry("cuMemUnmap");
  return entry.call([&] { return simgpu::unmap(address, bytes); });
}

CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  static EntryPoint entry("cuMemSetAccess");
  return entry.call([&] { return simgpu::set_access(address, bytes, access, count); });
}
