#pragma once

#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "engine/entry.hpp"

/// @file
/// Kernels of tests, run to their end.

namespace simgpu::test {

/// Launches on the legacy stream and waits. @return what the launch returned.
template <class... Parameters, class... Arguments>
cudaError_t run(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(Parameters...),
                Arguments... arguments) {
  const cudaLaunchConfig_t config{.gridDim = grid,
                                  .blockDim = block,
                                  .dynamicSmemBytes = shared_bytes,
                                  .stream = nullptr,
                                  .attrs = nullptr,
                                  .numAttrs = 0};
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status != cudaSuccess) {
    EXPECT_EQ(cudaGetLastError(), status);
    return status;
  }
  return cudaDeviceSynchronize();
}

/// A scope in which the device may meet an error that stays; forgotten at its end.
class StickyError {
 public:
  StickyError() = default;
  StickyError(const StickyError&) = delete;
  StickyError& operator=(const StickyError&) = delete;
  ~StickyError() {
    forget_sticky_error();
    static_cast<void>(cudaGetLastError());
  }
};

/// Elements on the device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& content) : DeviceArray(content.size()) {
    EXPECT_EQ(cudaMemcpy(data_, content.data(), content.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { static_cast<void>(cudaFree(data_)); }

  T* data() const { return data_; }
  std::vector<T> download() const {
    std::vector<T> content(count_);
    EXPECT_EQ(cudaMemcpy(content.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return content;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

}  // namespace simgpu::test
