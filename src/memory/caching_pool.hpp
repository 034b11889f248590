#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/macros.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "memory/high_water.hpp"
#include "memory/pool_counts.hpp"
#include "memory/pool_report.hpp"
#include "memory/recent_cache.hpp"
#include "memory/segment_store.hpp"
#include "memory/waiting_blocks.hpp"
#include "memory/waste_bound.hpp"
#include "runtime/step_recording.hpp"

/// @file
/// A caching, stream-ordered memory pool over any upstream.

namespace lockstep {

/// Keeps memory that tensors return and gives it out again.
///
/// - Each stream has free lists of its own; a block goes back to the stream that allocated it.
/// - Free neighbours of a segment coalesce; larger blocks are split. The smallest blocks skip both,
///   and the pool's lock: each thread keeps what it returned last, for a request of just its size.
/// - Blocks used on other streams (`record_stream`) wait for an event on each before they are free.
/// - A `BlockObserver` hears of each block that is allocated or freed.
/// - Before the pool asks the upstream for more it makes use of all that it has for the stream.
/// - When the upstream refuses, the pool returns what is free and tries again; waits for blocks in
///   use on other streams, returns what is free then, and tries a last time.
/// - Over a growable upstream, free pages are taken out and put where they are needed before the
///   pool holds much more than was ever live (`WasteBound`).
///
/// Waste: a block is larger than the request by less than `granularity` bytes, beyond `small_limit`
/// by less than that and `large_rest`. Over a growable upstream, a `trim` leaves less than two
/// pages unused beside each run of neighbouring blocks that are out; so a request can fail only if
/// less than its size, rounded up to pages, is free in whole pages.
template <Upstream U>
class CachingPool final : public MemoryPool {
  using Block = detail::PoolBlock;
  using State = detail::BlockState;
  using StreamLists = detail::StreamLists;

 public:
  /// @param runtime the seam used for events; must outlive the pool.
  CachingPool(U upstream, DeviceRuntime& runtime, Device device, PoolOptions options = {})
      : device_(device),
        options_(options),
        unit_bits_(std::countr_zero(options.granularity)),
        store_(std::move(upstream), options),
        runtime_(runtime),
        waiting_(runtime),
        recent_(unit_bits_) {
    LOCKSTEP_CHECK(std::has_single_bit(options.granularity), InvalidArgument,
                   "a pool's granularity is a power of two, not ", options.granularity);
  }

  MemoryBlock* allocate(std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return nullptr;
    LOCKSTEP_CHECK(bytes <= largest_request, OutOfMemory, "a request for ", bytes, " bytes on ",
                   device_, " exceeds any address space");
    if (is_watched()) [[unlikely]]
      return allocate_watched(bytes, stream);
    const std::size_t units = units_of(bytes);
    if (units <= detail::RecentCache::largest)
      if (Block* block = recent_.mine().take(stream, units)) return block;
    std::unique_lock lock(mutex_);
    Block* const block = allocate_locked(units << unit_bits_, stream);
    high_water_.tell(store_.reserved(), lock);
    return block;
  }

  void deallocate(MemoryBlock* memory) noexcept override {
    if (!memory) return;
    auto* block = static_cast<Block*>(memory);
    if (block->other_streams.empty() && !is_watched() && keep(block)) return;
    if (is_for_later(block)) return;
    const std::lock_guard lock(mutex_);
    if (!block->other_streams.empty() && put_to_wait(block)) return;
    tell_freed(block);
    if (keep(block)) return;
    counts_.add(recent_.mine());
    counts_.freed(block->size);
    detail::make_free(block);
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
    refuse_return_in_captured_step();
    const std::lock_guard lock(mutex_);
    waiting_.synchronize();
    release(0);
  }

  PoolStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return count();
  }

  void set_limit(std::size_t bytes) override {
    refuse_return_in_captured_step();
    const std::lock_guard lock(mutex_);
    store_.set_limit(bytes);
    if (store_.reserved() > bytes) release(bytes);
  }

  std::size_t limit() const override {
    const std::lock_guard lock(mutex_);
    return store_.limit();
  }

  void trim(std::size_t keep) override {
    refuse_return_in_captured_step();
    const std::lock_guard lock(mutex_);
    release(keep);
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    count_recent();
    counts_.peak_live_bytes = counts_.live_bytes;
    store_.reset_peak();
  }

  void set_high_water(std::size_t bytes, std::function<void(std::size_t)> reached) override {
    const std::lock_guard lock(mutex_);
    high_water_.set(bytes, std::move(reached), store_.reserved());
  }

  void record_history(std::optional<std::size_t> max_events) override {
    auto history = max_events ? std::make_unique<detail::AllocationHistory>(*max_events) : nullptr;
    const std::lock_guard lock(mutex_);
    records_.store(history != nullptr, std::memory_order_relaxed);
    history_ = std::move(history);
    store_.set_history(history_.get());
  }

  MemorySnapshot snapshot() const override {
    const std::lock_guard lock(mutex_);
    MemorySnapshot snapshot{.device = device_,
                            .statistics = count(),
                            .streams = detail::stream_memory(streams_, store_.segments()),
                            .by_tag = {},
                            .segments = detail::segment_infos(store_.segments(), history_.get()),
                            .events = {},
                            .tags = {}};
    if (history_) history_->describe(snapshot);
    return snapshot;
  }

 private:
  static constexpr std::size_t largest_request = std::size_t{1} << 48;

  /// The driver takes nothing back from a thread that captures, and nothing can be waited for.
  void refuse_return_in_captured_step() const {
    if (!device_.is_cpu())
      refuse_in_captured_step("a pool is trimmed or limited", "do that before or after the step");
  }

  std::size_t units_of(std::size_t bytes) const noexcept {
    return (bytes + options_.granularity - 1) >> unit_bits_;
  }

  /// Somebody wants to hear of each block: then the pool's lock is held throughout.
  bool is_watched() const noexcept {
    return block_observer() != nullptr || records_.load(std::memory_order_relaxed);
  }

  /// Keeps a block for the next request of its size, where it is not too large for that.
  bool keep(Block* block) noexcept {
    const std::size_t units = block->size >> unit_bits_;
    return units <= detail::RecentCache::largest && recent_.mine().keep(block, units);
  }

  LOCKSTEP_COLD MemoryBlock* allocate_watched(std::size_t bytes, StreamRef stream) {
    BlockObserver* const observer = block_observer();
    const std::size_t guard = observer ? observer->guard_bytes(device_) : 0;
    const std::size_t units = units_of(bytes + guard);
    std::unique_lock lock(mutex_);
    reclaim_in_passing();
    Block* block = nullptr;
    if (units <= detail::RecentCache::largest) block = recent_.mine().take(stream, units);
    if (!block) block = allocate_locked(units << unit_bits_, stream);
    if (observer) observer->allocated(*block, bytes, stream);
    if (history_) history_->allocated(*block, bytes, stream);
    high_water_.tell(store_.reserved(), lock);
    return block;
  }

  Block* allocate_locked(std::size_t size, StreamRef stream) {
    reclaim_in_passing();
    StreamLists& lists = lists_of(stream);
    counts_.add(recent_.mine_open_for(lists));
    Block* block = take(lists, size, 8);
    if (!block) block = take_hard(lists, size);
    block->set(State::out);
    counts_.allocated(block->size);
    return block;
  }

  StreamLists& lists_of(StreamRef stream) {
    for (auto& lists : streams_)
      if (lists->stream == stream) return *lists;
    streams_.push_back(std::make_unique<StreamLists>());
    streams_.back()->stream = stream;
    return *streams_.back();
  }

  /// A block of the free lists, cut to size, or null.
  Block* take(StreamLists& lists, std::size_t size, int look_at) {
    const bool small = size <= options_.small_limit;
    auto& free = small ? lists.small : lists.large;
    Block* block = free.find(size, look_at);
    if (!block) return nullptr;
    const std::size_t smallest = small ? options_.granularity : options_.large_rest;
    // Made before anything changes, since making it may throw.
    auto rest = block->size - size < smallest ? nullptr : std::make_unique<Block>();
    free.remove(block);
    if (rest) detail::split(block, size, rest.release());
    return block;
  }

  /// What is not at hand: from blocks that are kept by size, then from the upstream. @throws
  /// PoolOutOfMemory.
  LOCKSTEP_COLD Block* take_hard(StreamLists& lists, std::size_t size) {
    constexpr int all = std::numeric_limits<int>::max();
    const auto again = [&] { return take(lists, size, all); };
    release_recent(&lists);
    if (Block* block = again()) return block;
    if constexpr (GrowableUpstream<U>)
      if (!options_.keeps) make_room(size);
    if (store_.grow(lists, size)) return again();
    if (!device_.is_cpu())
      refuse_in_captured_step("memory is short",
                              "the limit of the pool, or the device, is reached");
    ++out_of_memory_retries_;
    if (!options_.keeps) release(0);
    if (Block* block = again()) return block;
    if (store_.grow(lists, size)) return again();
    if (!waiting_.empty()) {
      waiting_.synchronize();
      options_.keeps ? reclaim_finished() : release(0);
      if (Block* block = again()) return block;
      if (store_.grow(lists, size)) return again();
    }
    throw_out_of_memory(size, lists.stream);
  }

  /// Free pages go back, to be put where `size` bytes are missing, rather than that the pool comes
  /// to hold much more than was ever live. Not while a step is captured: a stream could not be
  /// waited for, and the pool may not grow then anyway.
  void make_room(std::size_t size) {
    if (StepRecording::current()) return;
    const std::size_t before = store_.reserved();
    const std::size_t live = static_cast<std::size_t>(counts_.live_bytes) + size;
    if (before + store_.growth(size) <= waste_.most(live)) return;
    release(0);
    waste_.moved(before - store_.reserved());
  }

  [[noreturn]] LOCKSTEP_COLD void throw_out_of_memory(std::size_t size, StreamRef stream) {
    const PoolStatistics now = count();
    MemoryShortage shortage{.device = device_,
                            .wanted_bytes = size,
                            .live_bytes = now.live_bytes,
                            .reserved_bytes = now.reserved_bytes,
                            .limit_bytes = store_.limit(),
                            .owners = {}};
    detail::describe_shortage(shortage, streams_, store_.segments(), history_.get());
    if (history_) history_->out_of_memory(size, stream);
    throw PoolOutOfMemory(std::move(shortage));
  }

  /// While the thread captures a step, it records no event that somebody would ask later, and what
  /// was allocated before the step goes back outside of the graph.
  bool is_for_later(Block* block) noexcept {
    StepRecording* const recording = StepRecording::current();
    if (!recording || device_.is_cpu()) [[likely]]
      return false;
    if (&recording->memory() == this && block->other_streams.empty()) return false;
    recording->at_end([this, block] { deallocate(block); });
    return true;
  }

  /// True if the block has to wait for other streams.
  bool put_to_wait(Block* block) noexcept {
    counts_.add(recent_.mine());
    block->set(State::waiting);
    if (waiting_.add(block, std::exchange(block->other_streams, {}))) {
      block->set(State::out);
      return false;
    }
    counts_.freed(block->size);
    if (history_) history_->free_requested(*block, block->lists->stream);
    return true;
  }

  void tell_freed(const Block* block) noexcept {
    if (BlockObserver* observer = block_observer()) [[unlikely]]
      observer->freed(*block, block->lists->stream);
    if (history_) [[unlikely]]
      history_->freed(*block, block->lists->stream);
  }

  /// Not where memory is kept: a rehearsal must come to hold what the capture behind it needs, and
  /// while that is open no event can be asked.
  void reclaim_in_passing() {
    if (!waiting_.empty() && !options_.keeps) reclaim_finished();
  }

  void reclaim_finished() {
    waiting_.reclaim([this](Block* block) {
      tell_freed(block);
      detail::make_free(block);
    });
  }

  /// Lets blocks that are kept by size coalesce: those of a stream, or with null all.
  void release_recent(const StreamLists* lists) {
    for (detail::RecentCache& cache : recent_)
      cache.release(lists, [](Block* block) { detail::make_free(block); });
  }

  /// Returns what is free until no more than `keep` bytes are held.
  void release(std::size_t keep) {
    reclaim_finished();
    release_recent(nullptr);
    store_.release(keep, [this](StreamRef stream) { runtime_.synchronize(stream); });
    high_water_.fall_to(store_.reserved());
  }

  void count_recent() const noexcept {
    for (detail::RecentCache& cache : recent_) counts_.add(cache);
  }

  PoolStatistics count() const {
    count_recent();
    return {.live_bytes = static_cast<std::size_t>(counts_.live_bytes),
            .peak_live_bytes = static_cast<std::size_t>(counts_.peak_live_bytes),
            .reserved_bytes = store_.reserved(),
            .peak_reserved_bytes = store_.peak_reserved(),
            .allocations = counts_.allocations,
            .upstream_allocations = store_.allocations(),
            .upstream_frees = store_.frees(),
            .out_of_memory_retries = out_of_memory_retries_};
  }

  mutable detail::SpinLock mutex_;
  Device device_;
  PoolOptions options_;
  int unit_bits_;
  detail::StreamListsVector streams_;
  detail::SegmentStore<U> store_;
  DeviceRuntime& runtime_;
  detail::WaitingBlocks<Block> waiting_;
  detail::WasteBound waste_;
  mutable detail::RecentCaches recent_;
  mutable detail::PoolCounts counts_;
  std::uint64_t out_of_memory_retries_ = 0;
  detail::HighWater high_water_;
  std::atomic<bool> records_{false};
  std::unique_ptr<detail::AllocationHistory> history_;
};

}  // namespace lockstep
