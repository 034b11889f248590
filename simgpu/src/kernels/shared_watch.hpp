#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/memory_access.hpp"

/// @file
/// Finds threads of a block that touch the same shared memory with nothing between them.

namespace simgpu {

/// When a thread did something, in the order that barriers and warps give.
struct SharedTime {
  std::uint32_t epoch = 0;  ///< barriers of the block so far, blocks before it included
  std::uint16_t thread = 0;
  std::uint16_t completed = 0;  ///< collectives of the thread's warp so far
};

/// The accesses to one range of shared memory, byte by byte.
class SharedWatch {
 public:
  /// Watches `bytes` bytes from an address on; forgets what it watched.
  void watch(std::uintptr_t begin, std::size_t bytes);
  /// Forgets all accesses: epochs begin anew.
  void forget() { cells_size_ = 0; }
  bool holds(std::uintptr_t address) const { return address - begin_ < bytes_; }
  std::uintptr_t begin() const { return begin_; }

  /// An access by the running thread. @param block_start the epoch with which the block began.
  void access(std::uintptr_t address, unsigned bytes, AccessKind kind, const SharedTime& now,
              std::uint32_t block_start);

 private:
  struct Cell {
    SharedTime write;
    SharedTime read;
    SharedTime other_read;  ///< by a second thread
    bool atomic_write = false;
  };
  void check_read(Cell& cell, std::uintptr_t address, const SharedTime& now);
  void check_write(Cell& cell, std::uintptr_t address, AccessKind kind, const SharedTime& now);
  void found_race(std::uintptr_t address, const char* does, const SharedTime& other,
                  const char* did, const SharedTime& now) const;

  std::uintptr_t begin_ = 0;
  std::size_t bytes_ = 0;
  std::unique_ptr<Cell[]> cells_;
  std::size_t cells_size_ = 0;
};

}  // namespace simgpu
