#include "memory/cuda/driver_functions.hpp"

#include <optional>

#include <cuda_runtime_api.h>

namespace lockstep {
namespace {

/// False where the driver has no such function.
template <class Function>
bool find(const char* name, Function& function) {
  constexpr unsigned since = 10020;
  void* address = nullptr;
#if CUDART_VERSION >= 12050  // the former is deprecated where the latter exists
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &address, since, cudaEnableDefault);
#else
  static_cast<void>(since);
  const cudaError_t status = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault);
#endif
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  function = reinterpret_cast<Function>(address);
  return status == cudaSuccess && address;
}

std::optional<DriverFunctions> find_all() {
  DriverFunctions all{};
  const bool found =
      find("cuDeviceGet", all.device_get) && find("cuDeviceGetAttribute", all.device_attribute) &&
      find("cuMemGetAllocationGranularity", all.granularity) &&
      find("cuMemAddressReserve", all.reserve) && find("cuMemAddressFree", all.free_addresses) &&
      find("cuMemCreate", all.create) && find("cuMemRelease", all.release) &&
      find("cuMemMap", all.map) && find("cuMemUnmap", all.unmap) &&
      find("cuMemSetAccess", all.set_access);
  return found ? std::optional(all) : std::nullopt;
}

}  // namespace

const DriverFunctions* driver_functions() {
  static const std::optional<DriverFunctions> all = find_all();
  return all ? &*all : nullptr;
}

}  // namespace lockstep
