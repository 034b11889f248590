#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "cuda_runtime_api.h"

/// @file
/// The pools of cudaMallocAsync: one a device, which keeps nothing.

namespace simgpu {

/// What a cudaMemPool_t points to. Thread-safe.
class MemoryPool {
 public:
  /// The pool behind a handle, or null.
  static MemoryPool* from(cudaMemPool_t handle);
  /// The handle of a device's pool. @return cudaErrorInvalidDevice for one that does not exist.
  static cudaError_t of_device(cudaMemPool_t* handle, int device);

  int device() const { return device_; }
  /// As cudaMemPoolSetAttribute: flags are int, the others 64 bits.
  cudaError_t set(cudaMemPoolAttr attribute, const void* value);
  cudaError_t get(cudaMemPoolAttr attribute, void* value) const;

 private:
  static std::array<MemoryPool, 16>& all();

  mutable std::mutex mutex_;
  int device_ = 0;
  std::array<int, 3> flags_{1, 1, 1};
  std::uint64_t release_threshold_ = 0;
};

}  // namespace simgpu
