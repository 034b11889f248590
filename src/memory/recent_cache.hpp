#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/pool_block.hpp"
#include "memory/recent_lists.hpp"
#include "memory/spin_lock.hpp"

/// @file
/// The fast path of a pool: small blocks go back and forth without the pool's lock.

namespace lockstep::detail {

/// What went through a cache since it was asked last.
struct RecentCounts {
  std::ptrdiff_t live_bytes = 0;       ///< more, or less, is out
  std::ptrdiff_t peak_live_bytes = 0;  ///< the most that this was meanwhile
  std::uint64_t allocations = 0;
};

/// Blocks that threads returned last, by stream and exact size. One of several of a pool: each
/// thread uses its own, so that they seldom meet. A thread that holds the pool's lock may take the
/// cache's too, not the other way round.
class alignas(64) RecentCache {
 public:
  /// Units of the largest blocks that are kept.
  static constexpr std::size_t largest = RecentLists<PoolBlock>::largest;

  /// A block of just `units` units, at most `largest`, that came last, now out, or null.
  PoolBlock* take(StreamRef stream, std::size_t units) {
    const std::lock_guard lock(lock_);
    for (auto& kept : kept_) {
      if (kept->lists->stream != stream) continue;
      PoolBlock* block = kept->recent.take(units);
      if (!block) return nullptr;
      block->set(BlockState::out);
      counts_.live_bytes += static_cast<std::ptrdiff_t>(block->size);
      counts_.peak_live_bytes = std::max(counts_.peak_live_bytes, counts_.live_bytes);
      ++counts_.allocations;
      is_used_.store(true, std::memory_order_relaxed);
      return block;
    }
    return nullptr;
  }

  /// Keeps a block of `units` units that was out. False where much is kept already.
  bool keep(PoolBlock* block, std::size_t units) noexcept {
    const std::lock_guard lock(lock_);
    for (auto& kept : kept_) {
      if (kept->lists != block->lists) continue;
      if (!kept->recent.keep(block, units)) return false;
      block->set(BlockState::recent);
      counts_.live_bytes -= static_cast<std::ptrdiff_t>(block->size);
      is_used_.store(true, std::memory_order_relaxed);
      return true;
    }
    return false;
  }

  /// Blocks of the stream may be kept from now on. @param unit_bits log2 of a unit in bytes
  void open(StreamLists& lists, int unit_bits) {
    const std::lock_guard lock(lock_);
    kept_.push_back(std::make_unique<Kept>(Kept{&lists, RecentLists<PoolBlock>(unit_bits)}));
  }

  /// True if anything went through since `counts` was called. Exact for what the calling thread
  /// did.
  bool is_used() const noexcept { return is_used_.load(std::memory_order_relaxed); }
  /// What that was.
  RecentCounts counts() noexcept {
    const std::lock_guard lock(lock_);
    is_used_.store(false, std::memory_order_relaxed);
    return std::exchange(counts_, {});
  }

  /// Hands blocks to `give_back`: those of one stream, or with null all. True if there were any.
  template <class GiveBack>
  bool release(const StreamLists* lists, GiveBack&& give_back) {
    const std::lock_guard lock(lock_);
    bool any = false;
    for (auto& kept : kept_) {
      if (lists && kept->lists != lists) continue;
      while (PoolBlock* block = kept->recent.take_any()) {
        give_back(block);
        any = true;
      }
    }
    return any;
  }

 private:
  struct Kept {
    StreamLists* lists;
    RecentLists<PoolBlock> recent;
  };

  SpinLock lock_;
  std::vector<std::unique_ptr<Kept>> kept_;
  RecentCounts counts_;
  std::atomic<bool> is_used_{false};  // since `counts_` were asked for
};

/// The caches of a pool.
class RecentCaches {
 public:
  explicit RecentCaches(int unit_bits) : unit_bits_(unit_bits) {}
  /// That of the calling thread.
  RecentCache& mine() noexcept { return caches_[thread_number() % count]; }
  /// The same, which may keep blocks of a stream from now on. The pool's lock is held.
  RecentCache& mine_open_for(StreamLists& lists) {
    const std::uint32_t number = thread_number() % count, bit = std::uint32_t{1} << number;
    RecentCache& mine = caches_[number];
    if (lists.open_in & bit) [[likely]]
      return mine;
    mine.open(lists, unit_bits_);
    lists.open_in |= bit;
    return mine;
  }
  auto begin() noexcept { return caches_.begin(); }
  auto end() noexcept { return caches_.end(); }

 private:
  static std::uint32_t thread_number() noexcept {
    static std::atomic<std::uint32_t> last{0};
    static constinit thread_local std::uint32_t number = 0;
    if (number == 0) [[unlikely]]
      number = ++last;
    return number;
  }

  static constexpr std::uint32_t count = 16;
  int unit_bits_;
  std::array<RecentCache, count> caches_;
};

}  // namespace lockstep::detail
