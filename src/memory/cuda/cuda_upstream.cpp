#include <optional>

#include "memory/upstream.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {
namespace {

/// The allocation, or null where there is no more memory. Other failures throw.
void* allocated_or_null(const char* call, cudaError_t status, void* data) {
  if (status == cudaSuccess) return data;
  if (status != cudaErrorMemoryAllocation) detail::throw_cuda_error(call, status);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

void refuse_while_capturing() {
  if (StepRecording* recording = StepRecording::current()) [[unlikely]] {
    recording->suggest_another_try();
    refuse_in_captured_step("memory is wanted of the driver", "the pool must have enough before");
  }
}

// @param device none: any will do
template <class Call>
void free_on(std::optional<int> device, Call call) noexcept {
  try {
    const CudaDeviceGuard guard(device ? *device : CudaDeviceGuard::any_device());
    static_cast<void>(call());
  } catch (const CudaError&) {
    // The device has failed, and its memory went with it.
  }
}

}  // namespace

void* CudaUpstream::allocate(std::size_t bytes) {
  refuse_while_capturing();
  const CudaDeviceGuard guard(device_);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  return allocated_or_null("cudaMalloc", status, data);
}

void CudaUpstream::deallocate(void* data, std::size_t) noexcept {
  free_on(device_, [&] { return cudaFree(data); });
}

void* PinnedUpstream::allocate(std::size_t bytes) {
  refuse_while_capturing();
  const CudaDeviceGuard guard(CudaDeviceGuard::any_device());
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  return allocated_or_null("cudaHostAlloc", status, data);
}

void PinnedUpstream::deallocate(void* data, std::size_t) noexcept {
  free_on(std::nullopt, [&] { return cudaFreeHost(data); });
}

}  // namespace lockstep
