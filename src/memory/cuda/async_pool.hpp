#pragma once

#include <cstddef>

#include "memory/direct_pool.hpp"

/// @file
/// The driver's own stream-ordered pool, to compare with.

namespace lockstep {

/// Brings requests to cudaMallocAsync, whose pool keeps what is returned until it is trimmed.
class CudaAsyncPool final : public DirectPool {
 public:
  /// @param device index of the GPU. @throws CudaError where its driver has no such pool.
  explicit CudaAsyncPool(int device);

  void release_cached() override { trim(0); }
  void trim(std::size_t keep) override;

 private:
  void* obtain(std::size_t bytes, StreamRef stream) override;
  void give_back(const DirectBlock& block) noexcept override;

  int device_;
};

}  // namespace lockstep
