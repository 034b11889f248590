#include "runtime/cuda/stream_reserve.hpp"

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
  void* const stream = create(device, priority);
  kinds_.emplace(stream, kind);
  return {device, stream};
}

void StreamReserve::release(StreamRef stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto kind = kinds_.find(stream.handle);
  if (kind != kinds_.end()) idle_[kind->second].push_back(stream.handle);
}

}  // namespace lockstep
