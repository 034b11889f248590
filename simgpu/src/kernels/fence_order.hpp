#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/access_stamp.hpp"
#include "kernels/ready_queue.hpp"
#include "vector_types.h"

/// @file
/// What orders the blocks of one launch: a fence and then an atomic operation in the one, an
/// operation on the same address and then a fence in the other.

namespace simgpu {

/// The fences and atomic operations of the launch that runs. Its blocks run one after the other:
/// the operations on an address are a list, of which a block has seen all up to its own. A block
/// that was left and goes on counts as a second run, which comes after all that the block did
/// before.
class FenceOrder {
 public:
  explicit FenceOrder(const LaunchTime& time) : time_(time) {}

  void begin_launch();
  void begin_block(uint3 block);

  /// What a block knows that is left, for when it goes on.
  struct Left;
  Left leave_block() const;
  void go_on_with(uint3 block, const Left& left);
  /// True if the running block did it before it was left.
  bool is_before_leaving(AccessStamp then) const;

  /// The running thread makes a fence for the whole device.
  void fence(unsigned thread);
  /// It makes an atomic operation that other blocks see, or a volatile access.
  /// @param releases what came before its fence is handed on.
  void synchronize(unsigned thread, std::uintptr_t address, bool releases);
  /// It has come together with other threads of its warp (__syncwarp).
  void warp_barrier(unsigned thread) { warp_epoch_[thread / 32] = time_.epoch; }

  bool has_fenced(unsigned thread) const { return fence_epoch_[thread] >= time_.block_start; }
  /// Fences that the thread made since the last barrier of the block, at most 3.
  unsigned fences_in_epoch(unsigned thread) const {
    return fence_epoch_[thread] == time_.epoch ? std::min<unsigned>(fence_count_[thread], 3) : 0;
  }
  /// True if threads of a warp have met by __syncwarp since the last barrier of the block.
  bool have_met(unsigned thread, unsigned other) const {
    return thread / 32 == other / 32 && warp_epoch_[thread / 32] == time_.epoch;
  }

  /// True if what a block before this one did comes before what the running thread does now.
  /// @param values the thread is to see what was written: needs a fence on its side, too.
  bool is_before(AccessStamp then, unsigned thread, bool values) const;

  /// A block that has run, or runs.
  struct BlockRun {
    std::uint32_t start = 0;
    uint3 index{};
    bool has_synchronized = false;  ///< by an atomic operation
  };
  const BlockRun& block_of(AccessStamp stamp) const { return runs_[number_of(stamp)]; }
  const BlockRun& running_block() const { return runs_.back(); }

 private:
  /// What a block has handed on: what it did before the epoch, and what this thread did in it
  /// before so many fences.
  struct Release {
    std::size_t block;
    std::uint32_t epoch;
    unsigned thread;
    unsigned fences;
    bool of_all;   ///< other threads made a fence in the same epoch, and a barrier followed
    bool of_warp;  ///< the thread's warp had met before
  };
  struct Location;
  /// The first operations on an address.
  struct Seen {
    const Location* location;
    std::size_t count;
  };
  struct Location {
    std::vector<Release> releases;
    /// What the blocks that handed something on had seen elsewhere, with the place in the list.
    std::vector<std::pair<std::size_t, Seen>> inherited;
  };
  /// What the running block has seen, and by which thread.
  struct Observation {
    Seen seen;
    unsigned thread;
    std::uint32_t epoch;
    std::uint64_t number;
    std::uint32_t fence_epoch = 0;  ///< of the first fence after it; 0: none
  };

  bool are_of_one_block(std::size_t run, std::size_t other) const;
  std::size_t number_of(AccessStamp stamp) const;
  bool is_visible(const Observation& observation, unsigned thread) const;
  bool is_fenced(const Observation& observation, unsigned thread) const;
  void observe(const Location& location, unsigned thread);
  void release(Location& location, unsigned thread);
  bool covers(const Seen& seen, std::size_t block, AccessStamp then, int depth) const;
  static bool covers(const Release& release, AccessStamp then);

  const LaunchTime& time_;
  std::vector<BlockRun> runs_;
  std::unordered_map<std::uintptr_t, Location> locations_;
  std::vector<Observation> observations_;
  std::array<std::uint32_t, max_block_threads> fence_epoch_{};
  std::array<unsigned char, max_block_threads> fence_count_{};  ///< in that epoch, at most 4
  std::array<std::uint64_t, max_block_threads> fence_number_{};
  std::array<std::uint32_t, max_block_threads / 32> warp_epoch_{};
  std::uint32_t last_fence_epoch_ = 0;  ///< of any thread of the block
  bool several_fenced_ = false;         ///< in that epoch
  std::uint64_t number_ = 0;            ///< of fences and observations
  bool any_fence_ = false;              ///< in the launch
  bool has_gone_on_ = false;            ///< a block that was left, in the launch
};

struct FenceOrder::Left {
  std::vector<Observation> observations;
  std::array<bool, max_block_threads> has_fenced;
};

}  // namespace simgpu
