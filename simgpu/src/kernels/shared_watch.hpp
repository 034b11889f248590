#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/zeros.hpp"
#include "kernels/memory_access.hpp"
#include "vector_types.h"

/// @file
/// Finds threads of a block that touch the same shared memory with nothing between them.

namespace simgpu {

/// When a thread did something, in the order that barriers and warps give.
struct SharedTime {
  std::uint32_t epoch = 0;  ///< barriers of the block so far, blocks before it included
  std::uint16_t thread = 0;
  std::uint16_t completed = 0;  ///< barriers of the thread's warp so far
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
  /// What the blocks since an epoch have written, for a block that is left; it goes back when that
  /// goes on.
  std::vector<std::byte> save() const;
  void restore(const std::vector<std::byte>& saved, std::uint32_t since);

  /// The block ends, or is left: what its last access has stored is there now.
  void end_block() {
    if (suspect_.is_set) look_at_value();
  }

 private:
  struct Cell {
    SharedTime write;
    SharedTime read;
    SharedTime other_read;  ///< by a second thread
    bool atomic_write = false;
  };
  /// A write over another thread's: a race unless it stored what was there, which is seen when the
  /// next access comes.
  struct Suspect {
    bool is_set = false;
    std::uintptr_t address = 0;
    unsigned bytes = 0;
    std::array<std::byte, 16> value{};
    uint3 block{};
    SharedTime other, now;
  };
  void look_at_value();
  void suspect(std::uintptr_t address, const SharedTime& other, const SharedTime& now);
  void check_read(Cell& cell, std::uintptr_t address, const SharedTime& now);
  void check_write(Cell& cell, std::uintptr_t address, AccessKind kind, const SharedTime& now);
  void found_race(std::uintptr_t address, const char* does, const SharedTime& other,
                  const char* did, const SharedTime& now) const;
  static std::string text_of_race(std::uintptr_t address, const char* does, const SharedTime& other,
                                  const char* did);

  Suspect suspect_;
  std::uintptr_t begin_ = 0;
  std::size_t bytes_ = 0;
  Zeros<Cell> cells_;
  std::size_t cells_size_ = 0;
};

}  // namespace simgpu
