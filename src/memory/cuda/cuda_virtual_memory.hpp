#pragma once

#include <cstddef>

#include <cuda.h>

#include "memory/cuda/driver_functions.hpp"

/// @file
/// Virtual memory of a GPU.

namespace lockstep {

/// A VirtualMemory (paged_upstream.hpp) over the driver's. Each page is a piece of memory of its
/// own, as the driver unmaps only what was mapped at once; its handle is released as soon as it is
/// mapped, so that unmapping frees it. The device alone has access; other GPUs reach it by copies.
class CudaVirtualMemory {
 public:
  /// False where the device or its driver has no such memory.
  static bool is_supported(int device);

  /// @param device index of a GPU where it is supported. @throws CudaError.
  explicit CudaVirtualMemory(int device);

  std::size_t page_bytes() const noexcept { return page_bytes_; }
  /// Addresses, or null.
  void* reserve(std::size_t bytes);
  /// Puts memory there. False where the device has no more. @throws CudaError otherwise; nothing is
  /// mapped then.
  bool map(void* at, std::size_t bytes);
  /// Does not wait for work that may use the memory: the driver does not promise to.
  void unmap(void* at, std::size_t bytes) noexcept;
  void release(void* at, std::size_t bytes) noexcept;

 private:
  bool map_page(CUdeviceptr at);

  int device_;
  const DriverFunctions* driver_;
  CUmemAllocationProp properties_ = {};
  std::size_t page_bytes_ = 0;
};

}  // namespace lockstep
