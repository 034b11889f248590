#include "memory/cuda/cuda_virtual_memory.hpp"

#include "memory/cuda/driver_calls.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep {
namespace {

CUdeviceptr number(void* at) { return reinterpret_cast<CUdeviceptr>(at); }

/// The numbers of the driver's errors are the runtime's.
cudaError_t runtime_error(CUresult status) { return static_cast<cudaError_t>(status); }

void check(const char* call, CUresult status) {
  if (status != CUDA_SUCCESS) detail::throw_cuda_error(call, runtime_error(status));
}

/// True for success, false where there is no more. Other failures throw.
bool has_memory(const char* call, CUresult status) {
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check(call, status);
  return true;
}

bool has(const DriverFunctions& driver, CUdevice_attribute attribute, int device) {
  CUdevice handle = 0;
  int value = 0;
  return driver.device_get(&handle, device) == CUDA_SUCCESS &&
         driver.device_attribute(&value, attribute, handle) == CUDA_SUCCESS && value != 0;
}

}  // namespace

bool CudaVirtualMemory::is_supported(int device) {
  const CudaDeviceGuard guard(device);
  const DriverFunctions* const driver = driver_functions();
  return driver && has(*driver, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
}

CudaVirtualMemory::CudaVirtualMemory(int device) : device_(device), driver_(driver_functions()) {
  const CudaDeviceGuard guard(device);
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties_.allocFlags.gpuDirectRDMACapable =
      has(*driver_, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
  check("cuMemGetAllocationGranularity",
        driver_->granularity(&page_bytes_, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

void* CudaVirtualMemory::reserve(std::size_t bytes) {
  refuse_memory_while_capturing();
  const CudaDeviceGuard guard(device_);
  CUdeviceptr at = 0;
  if (!has_memory("cuMemAddressReserve", driver_->reserve(&at, bytes, page_bytes_, 0, 0)))
    return nullptr;
  return reinterpret_cast<void*>(at);
}

bool CudaVirtualMemory::map(void* at, std::size_t bytes) {
  refuse_memory_while_capturing();
  const CudaDeviceGuard guard(device_);
  std::size_t mapped = 0;
  const auto undo = [&] {
    if (mapped > 0) unmap(at, mapped);
  };
  try {
    for (; mapped < bytes; mapped += page_bytes_)
      if (!map_page(number(at) + mapped)) return undo(), false;
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUresult status = driver_->set_access(number(at), bytes, &access, 1);
    if (!has_memory("cuMemSetAccess", status)) return undo(), false;
    return true;
  } catch (...) {
    undo();
    throw;
  }
}

bool CudaVirtualMemory::map_page(CUdeviceptr at) {
  CUmemGenericAllocationHandle handle = 0;
  if (!has_memory("cuMemCreate", driver_->create(&handle, page_bytes_, &properties_, 0)))
    return false;
  const CUresult status = driver_->map(at, page_bytes_, 0, handle, 0);
  static_cast<void>(driver_->release(handle));
  return has_memory("cuMemMap", status);
}

// What fails below does so because the device has, and its memory went with it.

void CudaVirtualMemory::unmap(void* at, std::size_t bytes) noexcept {
  on_device(device_, [&] { static_cast<void>(driver_->unmap(number(at), bytes)); });
}

void CudaVirtualMemory::release(void* at, std::size_t bytes) noexcept {
  on_device(device_, [&] { static_cast<void>(driver_->free_addresses(number(at), bytes)); });
}

}  // namespace lockstep
