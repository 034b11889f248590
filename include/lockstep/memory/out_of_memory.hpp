#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/device.hpp"
#include "lockstep/core/error.hpp"

/// @file
/// What a pool says when it has no more memory.

namespace lockstep {

/// Blocks that one part of a program holds.
struct MemoryOwner {
  /// "blocks.3.fc1: linear" where allocations are recorded (`record_memory_history`), else the size
  /// of the blocks.
  std::string tag;
  std::size_t bytes = 0;
  std::size_t blocks = 0;
};

/// The state of a pool that could not serve a request.
struct MemoryShortage {
  Device device;
  std::size_t wanted_bytes = 0;
  std::size_t live_bytes = 0;      ///< handed out and not returned
  std::size_t reserved_bytes = 0;  ///< held from the upstream
  std::size_t limit_bytes = ~std::size_t{0};
  std::size_t free_bytes = 0;  ///< reserved and not in use, on all streams
  std::size_t largest_free_block_bytes = 0;
  /// Who holds most, the largest first: ten at most.
  std::vector<MemoryOwner> owners;

  /// The part of the free bytes that is not in the largest free block, from 0 to 1.
  double fragmentation() const noexcept {
    if (free_bytes == 0) return 0;
    return 1 - static_cast<double>(largest_free_block_bytes) / static_cast<double>(free_bytes);
  }
};

/// A request that failed after the pool had returned what was free, waited for what other streams
/// used, and tried again.
class PoolOutOfMemory : public OutOfMemory {
 public:
  /// @param shortage what the message is made of.
  explicit PoolOutOfMemory(MemoryShortage shortage,
                           std::source_location where = std::source_location::current())
      : OutOfMemory(message(shortage), where), shortage_(std::move(shortage)) {}

  /// What was wanted, and what is held by whom.
  const MemoryShortage& shortage() const noexcept { return shortage_; }

 private:
  static std::string message(const MemoryShortage& shortage);

  MemoryShortage shortage_;
};

}  // namespace lockstep
