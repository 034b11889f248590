#include <optional>

#include "memory/cuda/driver_calls.hpp"
#include "memory/upstream.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep {
namespace {

/// The allocation, or null where there is no more memory. Other failures throw.
void* allocated_or_null(const char* call, cudaError_t status, void* data) {
  if (status == cudaSuccess) return data;
  if (status != cudaErrorMemoryAllocation) detail::throw_cuda_error(call, status);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

}  // namespace

void* CudaUpstream::allocate(std::size_t bytes) {
  refuse_memory_while_capturing();
  const CudaDeviceGuard guard(device_);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  return allocated_or_null("cudaMalloc", status, data);
}

void CudaUpstream::deallocate(void* data, std::size_t) noexcept {
  on_device(device_, [&] { static_cast<void>(cudaFree(data)); });
}

void* PinnedUpstream::allocate(std::size_t bytes) {
  refuse_memory_while_capturing();
  const CudaDeviceGuard guard(CudaDeviceGuard::any_device());
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  return allocated_or_null("cudaHostAlloc", status, data);
}

void PinnedUpstream::deallocate(void* data, std::size_t) noexcept {
  on_device(std::nullopt, [&] { static_cast<void>(cudaFreeHost(data)); });
}

}  // namespace lockstep
