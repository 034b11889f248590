#include "memory/cuda/async_pool.hpp"

#include <cstdint>
#include <limits>

#include "lockstep/runtime/device_runtime.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep {
namespace {

cudaStream_t handle_of(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle); }

cudaMemPool_t pool_of(int device) {
  cudaMemPool_t pool = nullptr;
  LOCKSTEP_CUDA_CALL(cudaDeviceGetDefaultMemPool, &pool, device);
  return pool;
}

/// Work queued on `stream` from now on comes after what `other` has now.
void wait_for(StreamRef other, StreamRef stream) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  void* const event = runtime.create_event(other.device, false);
  try {
    runtime.record_event(event, other);
    runtime.wait_event(event, stream);
  } catch (...) {
    runtime.destroy_event(other.device, event);
    throw;
  }
  runtime.destroy_event(other.device, event);
}

/// Null where the driver has no memory left.
void* ask_driver(std::size_t bytes, StreamRef stream) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocAsync(&data, bytes, handle_of(stream));
  if (status == cudaSuccess) return data;
  if (status != cudaErrorMemoryAllocation) detail::throw_cuda_error("cudaMallocAsync", status);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

}  // namespace

CudaAsyncPool::CudaAsyncPool(int device) : DirectPool(cuda(device)), device_(device) {
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  LOCKSTEP_CUDA_CALL(cudaMemPoolSetAttribute, pool_of(device), cudaMemPoolAttrReleaseThreshold,
                     &keep);
}

void CudaAsyncPool::trim(std::size_t keep) {
  LOCKSTEP_CUDA_CALL(cudaMemPoolTrimTo, pool_of(device_), keep);
}

void* CudaAsyncPool::obtain(std::size_t bytes, StreamRef stream) {
  const CudaDeviceGuard guard(device_);
  if (void* const data = ask_driver(bytes, stream)) return data;
  // What was freed is the driver's once the stream has come so far; a capture cannot wait.
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  LOCKSTEP_CUDA_CALL(cudaStreamIsCapturing, handle_of(stream), &capture);
  if (capture != cudaStreamCaptureStatusNone) return nullptr;
  LOCKSTEP_CUDA_CALL(cudaStreamSynchronize, handle_of(stream));
  trim(0);
  return ask_driver(bytes, stream);
}

void CudaAsyncPool::give_back(const DirectBlock& block) noexcept {
  try {
    const CudaDeviceGuard guard(device_);
    for (const StreamRef other : block.other_streams) wait_for(other, block.stream);
    static_cast<void>(cudaFreeAsync(block.data, handle_of(block.stream)));
  } catch (const Error&) {
    // The device has failed, and its memory went with it.
  }
}

}  // namespace lockstep
