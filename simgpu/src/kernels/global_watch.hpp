#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/zeros.hpp"
#include "kernels/access_stamp.hpp"
#include "kernels/fence_order.hpp"
#include "kernels/global_race.hpp"
#include "kernels/kernel_launch.hpp"
#include "kernels/memory_access.hpp"
#include "kernels/shadow_arena.hpp"
#include "kernels/thread_scheduler.hpp"
#include "memory/fast_path.hpp"

/// @file
/// Finds threads of a launch, of one block or of two, that touch the same device memory with
/// nothing between them.

namespace simgpu {

/// Who touched a block of memory in this launch: a stamp for each granule of it.
struct TouchedBlock {
  static constexpr unsigned coarsest = 4;  ///< 16 bytes

  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  unsigned shift = coarsest;  ///< of a granule's size: none of the accesses ends inside of one
  bool may_be_written = false;
  bool is_followed = true;  ///< false: nothing is kept of it
  std::uint64_t* writes = nullptr;
  std::uint64_t* reads = nullptr;
  std::uint64_t* other_reads = nullptr;  ///< by a second thread
};

/// The accesses to device memory of the launch that runs.
class GlobalWatch {
 public:
  GlobalWatch(const LaunchTime& time, const ThreadScheduler& scheduler)
      : time_(time), scheduler_(scheduler), fences_(time) {}

  void begin_launch(const KernelLaunch& launch);
  /// @param at which of the launch's blocks of memory it is.
  TouchedBlock begin_memory(std::size_t at, const LiveRange& range, bool may_be_written);
  void end_memory(std::size_t at, const TouchedBlock& memory);
  void end_launch();
  void begin_block(uint3 block) { fences_.begin_block(block); }
  /// A block is left, and goes on later as the running one.
  FenceOrder::Left leave_block() {
    look_at_value();
    return fences_.leave_block();
  }
  void go_on_with(uint3 block, const FenceOrder::Left& left) { fences_.go_on_with(block, left); }
  /// Forgets all launches: epochs begin anew.
  void forget() { arena_.clear(); }

  /// The running thread makes a fence for the whole device, or meets others of its warp.
  void fence() { fences_.fence(scheduler_.current()); }
  void warp_barrier() { fences_.warp_barrier(scheduler_.current()); }

  SIMGPU_ALWAYS_INLINE void read(TouchedBlock& memory, const MemoryAccess& access) {
    if (!memory.writes && !memory.may_be_written) return;
    if (access.is_volatile) [[unlikely]]
      fences_.synchronize(scheduler_.current(), access.address, false);
    const AccessStamp now = stamp_of(access, access.is_volatile);
    const Granules granules = granules_of(memory, access);
    std::uint64_t* const reads = memory.reads ? memory.reads : add_reads(memory);
    if (!reads) return;
    for (std::size_t i = granules.first; i != granules.end; ++i) {
      if (memory.writes)
        if (const AccessStamp write(memory.writes[i]); !is_ordered(write, now)) [[unlikely]]
          check_read(memory, i, write, now, access);
      if (is_ordered(AccessStamp(reads[i]), now)) [[likely]]
        reads[i] = now.word();
      else
        add_other_read(memory, i, now);
    }
  }

  SIMGPU_ALWAYS_INLINE void write(TouchedBlock& memory, const MemoryAccess& access) {
    if (!memory.is_followed) [[unlikely]]
      return;
    const bool is_atomic = access.kind == AccessKind::atomic;
    if (is_atomic || access.is_volatile) [[unlikely]]
      if (!access.is_of_block) fences_.synchronize(scheduler_.current(), access.address, true);
    // A flag that is set after a fence is meant for others; so are atomics.
    const bool is_strong =
        is_atomic || (access.is_volatile && fences_.has_fenced(scheduler_.current()));
    const AccessStamp now = stamp_of(access, is_strong);
    const Granules granules = granules_of(memory, access);
    std::uint64_t* const writes = memory.writes ? memory.writes : add_writes(memory);
    if (!writes) return;
    for (std::size_t i = granules.first; i != granules.end; ++i) {
      if (const AccessStamp write(writes[i]); !is_ordered(write, now)) [[unlikely]]
        check_write(memory, i, write, false, now, access);
      if (memory.reads) check_reads(memory, i, now, access);
      writes[i] = now.word();
    }
  }

 private:
  struct Granules {
    std::size_t first, end;
  };

  SIMGPU_ALWAYS_INLINE AccessStamp stamp_of(const MemoryAccess& access, bool is_strong) {
    const unsigned thread = scheduler_.current();
    const auto place = reinterpret_cast<std::uintptr_t>(access.place) & places_.mask;
    places_.of[place] = access.place;
    return {time_.epoch,
            thread,
            {fences_.fences_in_epoch(thread), is_strong, access.is_of_block},
            static_cast<unsigned>(place)};
  }

  SIMGPU_ALWAYS_INLINE Granules granules_of(TouchedBlock& memory, const MemoryAccess& access) {
    const std::uintptr_t offset = access.address - memory.begin;
    if (((offset | access.bytes) & ((1u << memory.shift) - 1)) != 0) [[unlikely]]
      refine(memory, offset | access.bytes);
    return {offset >> memory.shift, (offset + access.bytes) >> memory.shift};
  }

  /// True unless it takes a closer look.
  bool is_ordered(AccessStamp then, AccessStamp now) const {
    const std::uint32_t epoch = then.epoch();
    if (epoch < time_.launch_start) return true;
    if (epoch < time_.block_start) return false;
    return epoch != time_.epoch || then.is_of_same_thread(now);
  }

  void check_reads(TouchedBlock& memory, std::size_t i, AccessStamp now,
                   const MemoryAccess& access) {
    if (const AccessStamp read(memory.reads[i]); !is_ordered(read, now)) [[unlikely]]
      check_write(memory, i, read, true, now, access);
    if (!memory.other_reads) return;
    if (const AccessStamp read(memory.other_reads[i]); !is_ordered(read, now)) [[unlikely]]
      check_write(memory, i, read, true, now, access);
  }

  std::uint64_t* add_writes(TouchedBlock& memory);
  std::uint64_t* add_reads(TouchedBlock& memory);
  void add_other_read(TouchedBlock& memory, std::size_t i, AccessStamp now);
  void refine(TouchedBlock& memory, std::uintptr_t ends);
  std::uint64_t* refined(const std::uint64_t* stamps, const TouchedBlock& memory, unsigned shift);

  void check_read(const TouchedBlock& memory, std::size_t i, AccessStamp write, AccessStamp now,
                  const MemoryAccess& access);
  void check_write(const TouchedBlock& memory, std::size_t i, AccessStamp then, bool was_read,
                   AccessStamp now, const MemoryAccess& access);
  bool is_race(AccessStamp then, AccessStamp now, bool values) const;
  GlobalRace race_of(const TouchedBlock& memory, std::size_t i, AccessStamp then, bool was_read,
                     AccessStamp now, const MemoryAccess& access) const;
  void look_at_value();

  /// The places in the code by their low bits: kernels are smaller than that.
  struct Places {
    static constexpr std::uintptr_t mask = (1u << AccessStamp::place_bits) - 1;
    Zeros<const void*> of = zeros<const void*>(mask + 1);
  };
  /// A write that races unless it stored what was there: seen when the next one comes.
  struct Suspect {
    bool is_set = false;
    const void* data = nullptr;
    unsigned bytes = 0;
    std::array<std::byte, 16> value{};
    GlobalRace race;
  };

  const LaunchTime& time_;
  const ThreadScheduler& scheduler_;
  FenceOrder fences_;
  ShadowArena arena_;
  Places places_;
  Suspect suspect_;
  /// Sizes of granules that a kernel's former launches have come down to.
  std::unordered_map<const void*, std::vector<unsigned char>> shifts_;
  std::vector<unsigned char>* own_shifts_ = nullptr;
  bool is_found_ = false;  ///< the launch has its finding
};

}  // namespace simgpu
