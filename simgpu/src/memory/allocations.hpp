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
};

/// Every live allocation of the process, and the last few thousand freed ones. Thread-safe.
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
  /// First and past-the-end address of the live allocation at the address; zeros if there is none.
  std::pair<std::uintptr_t, std::uintptr_t> bounds_of(const void* address) const;

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
