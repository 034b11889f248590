#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "cuda_runtime_api.h"

/// @file
/// Page-locked host memory: its flags, and the program's own memory that it registered.

namespace simgpu {

/// Host memory that the device reaches.
struct HostRange {
  void* data = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  unsigned flags = 0;
  cudaMemoryType kind = cudaMemoryTypeHost;
};

/// The ranges of cudaHostRegister, and the flags of cudaHostAlloc. Thread-safe.
class HostMemory {
 public:
  /// The one instance, never destroyed.
  static HostMemory& instance();

  /// @return cudaErrorHostMemoryAlreadyRegistered where the ranges overlap.
  cudaError_t add(const HostRange& range);
  /// @return false unless a range begins there.
  bool remove(const void* data);
  /// The range that holds the address.
  std::optional<HostRange> find(const void* address) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, HostRange> ranges_;
};

/// True for memory of the host that is neither allocated nor registered with the device.
bool is_pageable(const void* address);

}  // namespace simgpu
