#pragma once

#include "runtime/cuda/check.hpp"

namespace lockstep {

/// Makes a CUDA device current for the calling thread and restores the former one.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int index) {
    LOCKSTEP_CUDA_CALL(cudaGetDevice, &previous_);
    if (index == previous_) return;
    LOCKSTEP_CUDA_CALL(cudaSetDevice, index);
    changed_ = true;
  }
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;
  ~CudaDeviceGuard() {
    if (changed_) static_cast<void>(cudaSetDevice(previous_));
  }

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace lockstep
