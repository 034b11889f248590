#include <string_view>

#include "base/options.hpp"
#include "cuda.h"
#include "cuda_runtime_api.h"
#include "engine/entry.hpp"

/// @file
/// How a program reaches the driver without being linked to it.

namespace simgpu {
namespace {

struct DriverFunction {
  std::string_view name;
  void* address;
  int since;  ///< the version of CUDA that brought it
};

#define SIMGPU_DRIVER_FUNCTION(name, since) \
  { #name, reinterpret_cast < void*>(&name), since }
const DriverFunction driver_functions[] = {
    SIMGPU_DRIVER_FUNCTION(cuDeviceGet, 2000),
    SIMGPU_DRIVER_FUNCTION(cuDeviceGetAttribute, 2000),
    SIMGPU_DRIVER_FUNCTION(cuMemGetAllocationGranularity, 10020),
    SIMGPU_DRIVER_FUNCTION(cuMemAddressReserve, 10020),
    SIMGPU_DRIVER_FUNCTION(cuMemAddressFree, 10020),
    SIMGPU_DRIVER_FUNCTION(cuMemCreate, 10020),
    SIMGPU_DRIVER_FUNCTION(cuMemRelease, 10020),
    SIMGPU_DRIVER_FUNCTION(cuMemMap, 10020),
    SIMGPU_DRIVER_FUNCTION(cuMemUnmap, 10020),
    SIMGPU_DRIVER_FUNCTION(cuMemSetAccess, 10020),
};
#undef SIMGPU_DRIVER_FUNCTION

cudaDriverEntryPointQueryResult look_up_function(std::string_view name, unsigned version,
                                                 void** function) {
  for (const DriverFunction& known : driver_functions) {
    if (known.name != name) continue;
    if (version < static_cast<unsigned>(known.since))
      return cudaDriverEntryPointVersionNotSufficent;
    *function = known.address;
    return cudaDriverEntryPointSuccess;
  }
  return cudaDriverEntryPointSymbolNotFound;
}

}  // namespace
}  // namespace simgpu

using simgpu::EntryPoint;

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found) {
  static EntryPoint entry("cudaGetDriverEntryPointByVersion");
  return entry.call([&] {
    if (!name || !function || flags > cudaEnablePerThreadDefaultStream || version > CUDART_VERSION)
      return cudaErrorInvalidValue;
    *function = nullptr;
    const cudaDriverEntryPointQueryResult result =
        simgpu::look_up_function(name, version, function);
    if (found) *found = result;
    return cudaSuccess;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  static EntryPoint entry("cuDeviceGet");
  return entry.call([&] {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (ordinal < 0 || ordinal >= simgpu::options().devices) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  static EntryPoint entry("cuDeviceGetAttribute");
  return entry.call([&] {
    if (device < 0 || device >= simgpu::options().devices) return CUDA_ERROR_INVALID_DEVICE;
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
      case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: *value = 0; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}
