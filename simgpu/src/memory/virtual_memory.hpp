#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/call_site.hpp"
#include "cuda.h"
#include "memory/allocations.hpp"
#include "memory/range_set.hpp"

/// @file
/// Memory of devices that the program puts to addresses of its choice.

namespace simgpu {

/// Reserved addresses, physical memory, and where of the former the latter lies. Arguments are
/// checked against the driver's documented contract. Thread-safe.
///
/// Narrower than the driver: addresses belong to the device that was current when they were
/// reserved, and take memory of that device alone; a piece of memory lies at one address at most;
/// access is read-write, and once given it stays until the memory is unmapped.
class VirtualMemory {
 public:
  /// All sizes and addresses are multiples of it, as on today's GPUs.
  static constexpr std::size_t granularity = std::size_t{2} << 20;

  /// The one instance, never destroyed.
  static VirtualMemory& instance();

  CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, int device);
  CUresult free_addresses(CUdeviceptr address, std::size_t bytes);
  CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, int device);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle);
  CUresult unmap(CUdeviceptr address, std::size_t bytes);
  /// Gives the device of the addresses access to memory that lies there. What already has it keeps
  /// its content.
  CUresult open(CUdeviceptr address, std::size_t bytes);
  /// True if whole mappings lie side by side from `address` on for just so many bytes.
  bool is_mapped(CUdeviceptr address, std::size_t bytes) const;

  /// The accessible memory around an address, as far as it reaches without a gap.
  std::optional<Allocation> find(const void* address) const;
  /// The bounds of that, and of the reserved addresses.
  AllocationBounds bounds_of(const void* address) const;

  /// Why the device cannot use a reserved address.
  struct Gap {
    bool had_memory = false;
    std::string text = {};
  };
  /// Nothing if the address is not reserved, or usable.
  std::optional<Gap> gap_at(const void* address) const;

 private:
  struct Physical {
    std::size_t bytes = 0;
    int device = 0;
    bool is_mapped = false, is_released = false;
  };
  struct Mapping {
    std::uintptr_t end = 0;
    CUmemGenericAllocationHandle handle = 0;
    CallSite created = {};
  };
  struct Reservation {
    std::uintptr_t begin = 0, end = 0, placed = 0;
    int device = 0;
    CallSite created = {}, unmapped = {};
    std::map<std::uintptr_t, Mapping> mappings = {};
    RangeSet accessible = {};  // as far as it reaches without a gap
    RangeSet past = {};        // where memory was
  };
  using Reservations = std::map<std::uintptr_t, Reservation>;

  VirtualMemory() = default;
  const Reservation* holding(std::uintptr_t address) const;
  Reservation* holding(std::uintptr_t begin, std::size_t bytes);
  static bool covers_whole(const Reservation& reservation, std::uintptr_t begin,
                           std::uintptr_t end);
  std::uintptr_t reserved_at(std::uintptr_t address) const;
  void put_away(Reservation gone);
  void drop(CUmemGenericAllocationHandle handle);

  // The locks of the allocations may be taken while this is held; those of the pools' blocks take
  // it themselves.
  mutable std::mutex mutex_;
  Reservations reservations_;
  std::deque<Reservation> freed_;
  std::map<CUmemGenericAllocationHandle, Physical> physical_;
  CUmemGenericAllocationHandle last_handle_ = 0;
};

}  // namespace simgpu
