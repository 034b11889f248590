#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/layout.hpp"

/// @file
/// Which memory a launch has touched.

namespace simgpu {

/// A range of addresses.
struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

/// One bit for each 16 bytes of the devices' memory. The order in which threads touch it costs
/// nothing, and strided accesses stay apart.
class TouchMap {
 public:
  TouchMap();
  TouchMap(const TouchMap&) = delete;
  TouchMap& operator=(const TouchMap&) = delete;

  /// Notes an access of 1 to 16 bytes.
  void touch(std::uintptr_t address, unsigned bytes) {
    const std::size_t first = (address - Layout::begin) >> granule_bits;
    const std::size_t last = (address + bytes - 1 - Layout::begin) >> granule_bits;
    words_[first >> 6] |= std::uint64_t{1} << (first & 63);
    words_[last >> 6] |= std::uint64_t{1} << (last & 63);
  }

  /// What was touched between two addresses, as few ranges as describe it well; forgets it.
  /// @param bytes if given, grows by the size of what was touched, in whole granules of 16 bytes.
  std::vector<AddressRange> take(AddressRange hull, std::uint64_t* bytes = nullptr);

 private:
  static constexpr unsigned granule_bits = 4;
  std::uint64_t* words_;
};

}  // namespace simgpu
