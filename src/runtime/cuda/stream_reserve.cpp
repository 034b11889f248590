#include "runtime/cuda/stream_reserve.hpp"

#include "lockstep/runtime/device_runtime.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep {
namespace {

cudaStream_t create(Device device, StreamPriority priority) {
  const CudaDeviceGuard guard(device.index);
  int least = 0;
  int greatest = 0;
  LOCKSTEP_CUDA_CALL(cudaDeviceGetStreamPriorityRange, &least, &greatest);
  cudaStream_t stream = nullptr;
  LOCKSTEP_CUDA_CALL(cudaStreamCreateWithPriority, &stream, cudaStreamNonBlocking,
                     priority == StreamPriority::high ? greatest : least);
  return stream;
}

/// Numbers that are 0 before the first work of the stream; null where there is no memory.
std::uint32_t* make_counters(StreamRef stream) {
  const CudaDeviceGuard guard(stream.device.index);
  constexpr std::size_t bytes = stream_counters * sizeof(std::uint32_t);
  void* counters = nullptr;
  // An allocation hurts no capture that the thread may have begun on another stream.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  LOCKSTEP_CUDA_CALL(cudaThreadExchangeStreamCaptureMode, &mode);
  const cudaError_t status = cudaMalloc(&counters, bytes);
  LOCKSTEP_CUDA_CALL(cudaThreadExchangeStreamCaptureMode, &mode);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  if (status != cudaSuccess) detail::throw_cuda_error("cudaMalloc", status);
  LOCKSTEP_CUDA_CALL(cudaMemsetAsync, counters, 0, bytes, static_cast<cudaStream_t>(stream.handle));
  return static_cast<std::uint32_t*>(counters);
}

}  // namespace

StreamRef StreamReserve::acquire(Device device, StreamPriority priority) {
  const Kind kind{device.index, priority};
  const std::lock_guard lock(mutex_);
  std::vector<void*>& idle = idle_[kind];
  if (!idle.empty()) {
    void* const stream = idle.back();
    idle.pop_back();
    return {device, stream};
  }
  idle.reserve(idle.capacity() + 1);  // room for the new one: its release must not fail
  const StreamRef stream{device, create(device, priority)};
  made_.emplace(stream.handle, Made{kind, make_counters(stream)});
  return stream;
}

void StreamReserve::release(StreamRef stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto made = made_.find(stream.handle);
  if (made != made_.end()) idle_[made->second.kind].push_back(stream.handle);
}

std::uint32_t* StreamReserve::counters(StreamRef stream) {
  const std::lock_guard lock(mutex_);
  const auto made = made_.find(stream.handle);
  return made == made_.end() ? nullptr : made->second.counters;
}

}  // namespace lockstep
