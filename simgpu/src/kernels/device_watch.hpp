#pragma once

#include <cstdint>
#include <vector>

#include "engine/operation.hpp"
#include "kernels/global_watch.hpp"
#include "kernels/kernel_launch.hpp"
#include "kernels/memory_access.hpp"
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
  DeviceWatch(const LaunchTime& time, const ThreadScheduler& scheduler) : races_(time, scheduler) {}

  /// The launch may touch the blocks that its pointers point into, and those that pointers in these
  /// point into.
  void begin(const KernelLaunch& launch);
  /// The ranges that were touched.
  std::vector<Access> finish();
  /// How much the threads have asked for, and what `finish` has found.
  const DeviceTraffic& traffic() const { return traffic_; }

  /// One access of the running thread. All that is to be known of accesses to device memory passes
  /// here, once each.
  SIMGPU_ALWAYS_INLINE void access(const MemoryAccess& access) {
    if (access.reads()) read(access);
    if (access.writes()) write(access);
  }

  /// What orders the threads of a launch.
  GlobalWatch& races() { return races_; }

 private:
  SIMGPU_ALWAYS_INLINE void read(const MemoryAccess& access) {
    traffic_.read += access.bytes;
    Watched* const block = find(access.address, access.bytes);
    if (block && readable(access.address, access.bytes)) [[likely]] {
      block->read.note(access.address, access.bytes, read_);
      if (!access.writes()) races_.read(block->touched, access);
    } else {
      refuse(access.address, access.bytes, false);
    }
  }
  SIMGPU_ALWAYS_INLINE void write(const MemoryAccess& access) {
    traffic_.written += access.bytes;
    Watched* const block = find(access.address, access.bytes);
    if (block && writable(access.address, access.bytes)) [[likely]] {
      set_initialized(reinterpret_cast<const void*>(access.address), access.bytes);
      block->written.note(access.address, access.bytes, written_);
      races_.write(block->touched, access);
    } else {
      refuse(access.address, access.bytes, true);
    }
  }

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
    TouchedBlock touched;
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
  Watched* follow(std::uintptr_t address, unsigned bytes);
  bool leads_to(const LiveRange& block) const;
  void refuse(std::uintptr_t address, unsigned bytes, bool writes);
  bool report_refused(const Access& access) const;

  std::vector<Watched> blocks_;
  std::vector<std::uintptr_t> strange_;  ///< beginnings of blocks that no pointer leads to
  std::size_t last_ = 0;
  int device_ = 0;
  TouchMap read_, written_;
  DeviceTraffic traffic_;
  GlobalWatch races_;
};

}  // namespace simgpu
