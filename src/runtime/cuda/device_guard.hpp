#pragma once

#include <atomic>

#include "runtime/cuda/check.hpp"

namespace lockstep {

/// The device of a thread that chose none. CUDA's is 0; a rank that was given another must not
/// touch that one, where to make it current is to set up a context.
inline std::atomic<int> home_device{0};

/// Makes a CUDA device current for the calling thread and restores the former one, or the home
/// device in the place of device 0.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int index) {
    LOCKSTEP_CUDA_CALL(cudaGetDevice, &previous_);
    if (index == previous_) [[likely]]
      return;
    LOCKSTEP_CUDA_CALL(cudaSetDevice, index);
    changed_ = true;
  }
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;
  ~CudaDeviceGuard() {
    if (changed_) static_cast<void>(cudaSetDevice(or_home(previous_)));
  }

  /// `index`, or the home device in the place of 0.
  static int or_home(int index) {
    return index == 0 ? home_device.load(std::memory_order_relaxed) : index;
  }
  /// The device that calls should be made with that are for no device in particular.
  static int any_device() {
    int index = 0;
    LOCKSTEP_CUDA_CALL(cudaGetDevice, &index);
    return or_home(index);
  }

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace lockstep
