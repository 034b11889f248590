#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/address_space.hpp"
#include "memory/placement.hpp"

/// @file
/// What cudaMalloc and its like gave out.

namespace simgpu {

/// A block with its guards, on pages of its own.
struct Allocation {
  Block block = {};
  std::uintptr_t pages = 0;
  std::size_t page_bytes = 0;
  CallSite freed = {};  ///< for those of the past
  /// Of memory that is mapped (virtual_memory.hpp): the beginning of the addresses reserved for it.
  std::uintptr_t reservation = 0;

  /// What pool blocks in it are counted to.
  const void* home() const {
    return reservation ? reinterpret_cast<const void*>(reservation) : block.data;
  }
};

/// First and past-the-end address of a live allocation, and of what its pool blocks are counted to.
struct AllocationBounds {
  std::uintptr_t begin = 0, end = 0;
  std::uintptr_t home_begin = 0, home_end = 0;
};

/// Every live allocation of the process, and the last few thousand freed ones; `find` and
/// `bounds_of` know memory that is mapped, too. Thread-safe.
class Allocations {
 public:
  static constexpr std::size_t guard_bytes = 256;

  /// The one instance, never destroyed.
  static Allocations& instance();

  /// As `allocate` and `release` of address_space.hpp.
  cudaError_t allocate(void** data, std::size_t bytes, int device, MemoryKind kind);
  cudaError_t release(void* data, MemoryKind kind);

  /// The live allocation whose pages, guards included, hold the address.
  std::optional<Allocation> find(const void* address) const;
  /// The freed one that was there last.
  std::optional<Allocation> find_freed(const void* address) const;
  /// Those of the live allocation at the address; zeros if there is none.
  AllocationBounds bounds_of(const void* address) const;

  /// Addresses of a device for whatever will lie there, or nothing.
  std::optional<std::uintptr_t> take_addresses(std::size_t bytes, int device);
  void give_back_addresses(std::uintptr_t begin, int device);
  /// Counts memory that lies elsewhere. @return false if the device has no more
  bool charge(std::size_t bytes, int device);
  void discharge(std::size_t bytes, int device);

  std::vector<Allocation> live() const;
  std::size_t used(int slot) const;
  /// Fills the damaged guards of live allocations again, of a device and of pinned memory, or of
  /// all. @return for each of them, what a report says
  std::vector<std::string> mend_guards(std::optional<int> device);

 private:
  using ByPage = std::map<std::uintptr_t, Allocation>;

  Allocations();
  static const Allocation* holding(const ByPage& allocations, std::uintptr_t address);
  void put_away(Allocation allocation);

  mutable std::mutex mutex_;
  std::vector<Placement> placements_;
  std::vector<std::size_t> used_;
  ByPage live_;
  ByPage freed_;
  std::deque<std::uintptr_t> freed_order_;
};

}  // namespace simgpu
