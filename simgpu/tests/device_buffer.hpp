#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

/// @file
/// Memory of a simulated device for tests of its libraries.

namespace simgpu::test {

/// Bytes on the current device.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
  }
  explicit DeviceBuffer(const std::vector<std::byte>& content) : DeviceBuffer(content.size()) {
    upload(content);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() { static_cast<void>(cudaFree(data_)); }

  void* data() const { return data_; }
  void* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }

  void upload(const std::vector<std::byte>& content) const {
    EXPECT_LE(content.size(), bytes_);
    EXPECT_EQ(cudaMemcpy(data_, content.data(), content.size(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  std::vector<std::byte> download() const {
    std::vector<std::byte> content(bytes_);
    EXPECT_EQ(cudaMemcpy(content.data(), data_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return content;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace simgpu::test
