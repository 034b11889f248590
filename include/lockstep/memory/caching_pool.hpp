#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/slab.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/memory/free_lists.hpp"
#include "lockstep/memory/recent_lists.hpp"
#include "lockstep/memory/upstream.hpp"
#include "lockstep/runtime/device_runtime.hpp"

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
/// - When the upstream refuses, the pool waits for such blocks, returns whole free segments and
///   tries once more.
template <Upstream U>
class CachingPool final : public Allocator {
 public:
  /// @param runtime the seam used for events; must outlive the pool.
  CachingPool(U upstream, DeviceRuntime& runtime, Device device, PoolOptions options = {})
      : upstream_(std::move(upstream)), runtime_(runtime), device_(device), options_(options) {}

  /// Returns all segments. Blocks still out become invalid.
  ~CachingPool() override {
    for (auto& waiting : waiting_) destroy_events(waiting);
    for (const Segment& segment : segments_) {
      upstream_.deallocate(segment.data, segment.size);
      for (Block* block = segment.first; block;) delete std::exchange(block, block->next);
    }
  }

  MemoryBlock* allocate(std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return nullptr;
    LOCKSTEP_CHECK(bytes <= largest_request, OutOfMemory, "a request for ", bytes, " bytes on ",
                   device_, " exceeds any address space");
    const std::size_t size = round_up(bytes, options_.granularity);
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) reclaim_finished();
    StreamLists& lists = lists_of(stream);
    Block* block = lists.recent.take(size / options_.granularity);
    if (!block) block = find_in(lists, size);
    if (!block) block = grow(lists, size);
    block->free = false;
    count_allocation(block->size);
    return block;
  }

  void deallocate(MemoryBlock* memory) noexcept override {
    if (!memory) return;
    auto* block = static_cast<Block*>(memory);
    const std::lock_guard lock(mutex_);
    statistics_.live_bytes -= block->size;
    if (!block->other_streams.empty()) return wait_for_other_streams(block);
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

  struct Waiting {
    Block* block;
    std::vector<void*> events;
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
    free.remove(block);
    split(block, size);
    return block;
  }

  /// Cuts what the request does not need off a block and puts it back.
  void split(Block* block, std::size_t size) {
    const std::size_t rest = block->size - size;
    if (rest < (block->small ? options_.granularity : options_.small_limit)) return;
    auto* tail = new Block();
    tail->data = static_cast<std::byte*>(block->data) + size;
    tail->size = rest;
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
    void* data = from_upstream(bytes);
    if (!data) {
      ++statistics_.out_of_memory_retries;
      flush();
      if (Block* block = find_in(lists, size)) return block;
      data = from_upstream(bytes);
    }
    LOCKSTEP_CHECK(data, OutOfMemory, "out of memory on ", device_, ": asked for ", size,
                   " bytes; ", statistics_.live_bytes, " are live and ", statistics_.reserved_bytes,
                   " reserved by the pool");
    auto* block = new Block();
    block->data = data;
    block->size = bytes;
    block->lists = &lists;
    block->small = small;
    segments_.push_back({data, bytes, block});
    ++statistics_.upstream_allocations;
    statistics_.reserved_bytes += bytes;
    statistics_.peak_reserved_bytes =
        std::max(statistics_.peak_reserved_bytes, statistics_.reserved_bytes);
    split(block, size);
    return block;
  }

  void* from_upstream(std::size_t bytes) {
    if (statistics_.reserved_bytes + bytes > options_.limit) return nullptr;
    return upstream_.allocate(bytes);
  }

  void count_allocation(std::size_t size) {
    ++statistics_.allocations;
    statistics_.live_bytes += size;
    statistics_.peak_live_bytes = std::max(statistics_.peak_live_bytes, statistics_.live_bytes);
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

  /// Puts an event behind the work of every other stream that uses the block.
  void wait_for_other_streams(Block* block) noexcept {
    Waiting waiting{block, {}};
    for (const StreamRef stream : std::exchange(block->other_streams, {})) {
      void* event = runtime_.create_event(stream.device, false);
      runtime_.record_event(event, stream);
      waiting.events.push_back(event);
    }
    waiting_.push_back(std::move(waiting));
  }

  void reclaim_finished() {
    std::erase_if(waiting_, [this](Waiting& waiting) {
      for (void* event : waiting.events)
        if (!runtime_.query_event(event)) return false;
      destroy_events(waiting);
      make_free(waiting.block);
      return true;
    });
  }

  void destroy_events(Waiting& waiting) noexcept {
    for (void* event : waiting.events) runtime_.destroy_event(device_, event);
    waiting.events.clear();
  }

  /// Waits for blocks in use on other streams, then returns all wholly free segments.
  void flush() {
    for (Waiting& waiting : waiting_)
      for (void* event : waiting.events) runtime_.synchronize_event(event);
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
  DeviceRuntime& runtime_;
  Device device_;
  PoolOptions options_;
  PoolStatistics statistics_;
  std::vector<std::unique_ptr<StreamLists>> streams_;
  std::vector<Segment> segments_;
  std::vector<Waiting> waiting_;
};

}  // namespace lockstep
