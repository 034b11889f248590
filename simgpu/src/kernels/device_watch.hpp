#pragma once

#include <cstdint>
#include <vector>

#include "engine/operation.hpp"
#include "kernels/touch_map.hpp"
#include "memory/fast_path.hpp"

/// @file
/// Checks what kernels do to device memory, and notes what they touch.

namespace simgpu {

/// Bytes of device memory.
struct DeviceTraffic {
  std::uint64_t read = 0, written = 0;                    ///< asked for by threads
  std::uint64_t distinct_read = 0, distinct_written = 0;  ///< in granules of 16 bytes
};

/// The accesses of the launch that runs to tracked memory. KernelRunner thread.
class DeviceWatch {
 public:
  /// @param pointers what the launch was given: it may touch the blocks that they point into.
  void begin(const std::vector<const void*>& pointers);
  /// The ranges that were touched.
  std::vector<Access> finish();
  /// How much the threads have asked for, and what `finish` has found.
  const DeviceTraffic& traffic() const { return traffic_; }

  void read(std::uintptr_t address, unsigned bytes) {
    traffic_.read += bytes;
    if (Watched* block = find(address, bytes); block && readable(address, bytes)) [[likely]]
      block->read.note(address, bytes, read_);
    else
      refuse(address, bytes, false);
  }
  void write(std::uintptr_t address, unsigned bytes) {
    traffic_.written += bytes;
    if (Watched* block = find(address, bytes); block && writable(address, bytes)) [[likely]] {
      set_initialized(reinterpret_cast<const void*>(address), bytes);
      block->written.note(address, bytes, written_);
    } else {
      refuse(address, bytes, true);
    }
  }

 private:
  /// The hull of one kind of access to a block.
  struct Hull {
    AddressRange range{~std::uintptr_t{0}, 0};
    void note(std::uintptr_t address, unsigned bytes, TouchMap& map) {
      range.begin = address < range.begin ? address : range.begin;
      range.end = address + bytes > range.end ? address + bytes : range.end;
      map.touch(address, bytes);
    }
  };
  struct Watched {
    LiveRange block;
    Hull read, written;
  };

  static bool readable(std::uintptr_t address, unsigned bytes) {
    return is_readable(reinterpret_cast<const void*>(address), bytes);
  }
  static bool writable(std::uintptr_t address, unsigned bytes) {
    return is_writable(reinterpret_cast<const void*>(address), bytes);
  }
  Watched* find(std::uintptr_t address, unsigned bytes) {
    if (last_ < blocks_.size() && blocks_[last_].block.holds(address, bytes)) [[likely]]
      return &blocks_[last_];
    return search(address, bytes);
  }
  Watched* search(std::uintptr_t address, unsigned bytes);
  void refuse(std::uintptr_t address, unsigned bytes, bool writes);

  std::vector<Watched> blocks_;
  std::size_t last_ = 0;
  TouchMap read_, written_;
  DeviceTraffic traffic_;
};

}  // namespace simgpu
