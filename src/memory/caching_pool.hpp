#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/macros.hpp"
#include "lockstep/core/slab.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "memory/free_lists.hpp"
#include "memory/recent_lists.hpp"
#include "memory/upstream.hpp"
#include "memory/waiting_blocks.hpp"

/// @file
/// A caching, stream-ordered memory pool over any upstream.

namespace lockstep {

/// Sizes that shape a pool.
struct PoolOptions {
  /// Every block is a multiple of this.
  std::size_t granularity = 512;
  /// Requests up to this share segments of `small_segment` bytes.
  std::size_t small_limit = std::size_t{1} << 20;
  std::size_t small_segment = std::size_t{2} << 20;
  /// Larger requests get segments of their own size, rounded up to a multiple of this.
  std::size_t large_rounding = std::size_t{2} << 20;
  /// Refuse to hold more than this from the upstream.
  std::size_t limit = ~std::size_t{0};
};

/// Keeps memory that tensors return and gives it out again.
///
/// - Each stream has free lists of its own; a block goes back to the stream that allocated it.
/// - Free neighbours of a segment coalesce; larger blocks are split. The smallest blocks skip both:
///   what was returned last is given out first, to a request of just its size.
/// - Blocks used on other streams (`record_stream`) wait for an event on each before they are free.
/// - A `BlockObserver` hears of each block that is allocated or freed.
/// - When the upstream refuses, the pool waits for such blocks, returns whole free segments and
///   tries once more.
template <Upstream U>
class CachingPool final : public Allocator {
 public:
  /// @param runtime the seam used for events; must outlive the pool.
  CachingPool(U upstream, DeviceRuntime& runtime, Device device, PoolOptions options = {})
      : upstream_(std::move(upstream)), device_(device), options_(options), waiting_(runtime) {}

  /// Returns all segments. Blocks still out become invalid.
  ~CachingPool() override {
    for (const Segment& segment : segments_) {
      upstream_.deallocate(segment.data, segment.size);
      for (Block* block = segment.first; block;) delete std::exchange(block, block->next);
    }
  }

  MemoryBlock* allocate(std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return nullptr;
    LOCKSTEP_CHECK(bytes <= largest_request, OutOfMemory, "a request for ", bytes, " bytes on ",
                   device_, " exceeds any address space");
    BlockObserver* const observer = block_observer();
    const std::size_t guard = observer ? observer->guard_bytes(device_) : 0;
    const std::size_t size = round_up(bytes + guard, options_.granularity);
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) reclaim_finished();
    StreamLists& lists = lists_of(stream);
    Block* block = lists.recent.take(size / options_.granularity);
    if (!block) block = find_in(lists, size);
    if (!block) block = grow(lists, size);
    block->free = false;
    count_allocation(block->size);
    if (observer) [[unlikely]]
      observer->allocated(*block, bytes, stream);
    return block;
  }

  void deallocate(MemoryBlock* memory) noexcept override {
    if (!memory) return;
    auto* block = static_cast<Block*>(memory);
    const std::lock_guard lock(mutex_);
    statistics_.live_bytes -= block->size;
    if (!block->other_streams.empty() &&
        !waiting_.add(block, std::exchange(block->other_streams, {})))
      return;
    tell_freed(block);
    if (!block->lists->recent.keep(block, block->size / options_.granularity)) make_free(block);
  }

  void record_stream(MemoryBlock* memory, StreamRef stream) override {
    if (!memory) return;
    auto* block = static_cast<Block*>(memory);
    const std::lock_guard lock(mutex_);
    auto& others = block->other_streams;
    if (stream == block->lists->stream || std::ranges::find(others, stream) != others.end()) return;
    others.push_back(stream);
  }

  void release_cached() override {
    const std::lock_guard lock(mutex_);
    flush();
  }

  PoolStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  static constexpr std::size_t largest_request = std::size_t{1} << 48;

  struct StreamLists;

  struct Block : MemoryBlock, SlabAllocated {
    Block* previous = nullptr;  // neighbours in the segment
    Block* next = nullptr;
    Block* previous_free = nullptr;
    Block* next_free = nullptr;
    StreamLists* lists = nullptr;
    bool free = true;
    bool small = true;
    std::vector<StreamRef> other_streams;
  };

  struct StreamLists {
    StreamRef stream;
    detail::FreeLists<Block> small;
    detail::FreeLists<Block> large;
    detail::RecentLists<Block> recent;
    detail::FreeLists<Block>& of(const Block* block) { return block->small ? small : large; }
  };

  struct Segment {
    void* data;
    std::size_t size;
    Block* first;
  };

  static constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }

  StreamLists& lists_of(StreamRef stream) {
    for (auto& lists : streams_)
      if (lists->stream == stream) return *lists;
    streams_.push_back(std::make_unique<StreamLists>());
    streams_.back()->stream = stream;
    return *streams_.back();
  }

  Block* find_in(StreamLists& lists, std::size_t size) {
    const bool small = size <= options_.small_limit;
    detail::FreeLists<Block>& free = small ? lists.small : lists.large;
    Block* block = free.find(size);
    if (!block) return nullptr;
    auto tail = new_tail(block, size);
    free.remove(block);
    split(block, size, std::move(tail));
    return block;
  }

  /// A node for what a request leaves of the block, or null where it takes all. Made before
  /// anything changes, since making it may throw.
  std::unique_ptr<Block> new_tail(const Block* block, std::size_t size) const {
    const std::size_t smallest = block->small ? options_.granularity : options_.small_limit;
    return block->size - size < smallest ? nullptr : std::make_unique<Block>();
  }

  /// Cuts what the request does not need off a block and puts it back.
  static void split(Block* block, std::size_t size, std::unique_ptr<Block> rest) noexcept {
    if (!rest) return;
    Block* tail = rest.release();
    tail->data = static_cast<std::byte*>(block->data) + size;
    tail->size = block->size - size;
    tail->lists = block->lists;
    tail->small = block->small;
    tail->previous = block;
    tail->next = block->next;
    if (tail->next) tail->next->previous = tail;
    block->next = tail;
    block->size = size;
    block->lists->of(tail).insert(tail);
  }

  /// A new segment from the upstream, flushing the caches once if it refuses.
  Block* grow(StreamLists& lists, std::size_t size) {
    const bool small = size <= options_.small_limit;
    const std::size_t bytes =
        small ? options_.small_segment : round_up(size, options_.large_rounding);
    if (release_recent(lists))
      if (Block* block = find_in(lists, size)) return block;
    auto block = std::make_unique<Block>();
    block->size = bytes;
    block->lists = &lists;
    block->small = small;
    auto tail = new_tail(block.get(), size);
    segments_.reserve(segments_.size() + 1);
    block->data = from_upstream(bytes);
    if (!block->data) {
      ++statistics_.out_of_memory_retries;
      flush();
      if (Block* found = find_in(lists, size)) return found;
      block->data = from_upstream(bytes);
    }
    if (!block->data) throw_out_of_memory(size);
    segments_.push_back({block->data, bytes, block.get()});
    count_segment(bytes);
    split(block.get(), size, std::move(tail));
    return block.release();
  }

  void* from_upstream(std::size_t bytes) {
    if (statistics_.reserved_bytes + bytes > options_.limit) return nullptr;
    return upstream_.allocate(bytes);
  }

  /// Says what is held and by whom, so that the reader can tell a leak from fragmentation.
  LOCKSTEP_COLD [[noreturn]] void throw_out_of_memory(std::size_t size) const {
    std::ostringstream holders;
    for (const auto& lists : streams_) {
      const Held held = held_by(*lists);
      holders << "; stream " << lists->stream.handle << " has " << held.out << " bytes in "
              << held.out_blocks << " blocks out, " << held.free << " free, the largest "
              << held.largest_free;
    }
    if (options_.limit != ~std::size_t{0}) holders << "; the limit is " << options_.limit;
    LOCKSTEP_THROW(OutOfMemory, "out of memory on ", device_, ": asked for ", size, " bytes; ",
                   statistics_.live_bytes, " are live and ", statistics_.reserved_bytes,
                   " reserved by the pool", holders.str());
  }

  /// What the blocks of one stream hold.
  struct Held {
    std::size_t out = 0, out_blocks = 0, free = 0, largest_free = 0;
  };
  Held held_by(const StreamLists& lists) const {
    Held held;
    for (const Segment& segment : segments_)
      for (const Block* block = segment.first; block && block->lists == &lists;
           block = block->next) {
        if (block->free) {
          held.free += block->size;
          held.largest_free = std::max(held.largest_free, block->size);
        } else {
          held.out += block->size;
          ++held.out_blocks;
        }
      }
    return held;
  }

  void count_segment(std::size_t bytes) {
    ++statistics_.upstream_allocations;
    statistics_.reserved_bytes += bytes;
    statistics_.peak_reserved_bytes =
        std::max(statistics_.peak_reserved_bytes, statistics_.reserved_bytes);
  }

  void count_allocation(std::size_t size) {
    ++statistics_.allocations;
    statistics_.live_bytes += size;
    statistics_.peak_live_bytes = std::max(statistics_.peak_live_bytes, statistics_.live_bytes);
  }

  static void tell_freed(const Block* block) noexcept {
    if (BlockObserver* observer = block_observer()) [[unlikely]]
      observer->freed(*block, block->lists->stream);
  }

  void make_free(Block* block) {
    StreamLists& lists = *block->lists;
    block->free = true;
    if (Block* next = block->next; next && next->free) {
      lists.of(next).remove(next);
      absorb_next(block);
    }
    if (Block* previous = block->previous; previous && previous->free) {
      lists.of(previous).remove(previous);
      absorb_next(previous);
      block = previous;
    }
    lists.of(block).insert(block);
  }

  /// Lets recently returned blocks coalesce. True if there were any.
  bool release_recent(StreamLists& lists) {
    bool any = false;
    while (Block* block = lists.recent.take_any()) {
      make_free(block);
      any = true;
    }
    return any;
  }

  static void absorb_next(Block* block) {
    Block* next = block->next;
    block->size += next->size;
    block->next = next->next;
    if (block->next) block->next->previous = block;
    delete next;
  }

  void reclaim_finished() {
    waiting_.reclaim([this](Block* block) {
      tell_freed(block);
      make_free(block);
    });
  }

  /// Waits for blocks in use on other streams, then returns all wholly free segments.
  void flush() {
    waiting_.synchronize();
    reclaim_finished();
    for (auto& lists : streams_) release_recent(*lists);
    std::erase_if(segments_, [this](Segment& segment) {
      Block* block = segment.first;
      if (!block->free || block->next) return false;
      block->lists->of(block).remove(block);
      delete block;
      upstream_.deallocate(segment.data, segment.size);
      statistics_.reserved_bytes -= segment.size;
      ++statistics_.upstream_frees;
      return true;
    });
  }

  mutable std::mutex mutex_;
  U upstream_;
  Device device_;
  PoolOptions options_;
  PoolStatistics statistics_;
  std::vector<std::unique_ptr<StreamLists>> streams_;
  std::vector<Segment> segments_;
  detail::WaitingBlocks<Block> waiting_;
};

}  // namespace lockstep
