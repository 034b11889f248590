#include "memory/direct_pool.hpp"

#include <algorithm>

#include "lockstep/memory/out_of_memory.hpp"

namespace lockstep {
namespace {

constexpr std::size_t largest_request = std::size_t{1} << 48;

}  // namespace

MemoryBlock* DirectPool::allocate(std::size_t bytes, StreamRef stream) {
  if (bytes == 0) return nullptr;
  auto block = std::make_unique<DirectBlock>();
  count_in(bytes);
  void* const data = bytes <= largest_request ? obtain(bytes, stream) : nullptr;
  if (!data) {
    count_out(bytes);
    throw_out_of_memory(bytes, stream);
  }
  block->data = data;
  block->size = bytes;
  block->stream = stream;
  std::unique_lock lock(mutex_);
  ++allocations_;
  peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
  if (history_) history_->allocated(*block, bytes, stream);
  const std::size_t live = live_bytes_;
  if (live > high_water_ && live - bytes <= high_water_ && reached_) {
    const auto reached = reached_;
    lock.unlock();
    reached(live);
  }
  return block.release();
}

void DirectPool::deallocate(MemoryBlock* memory) noexcept {
  if (!memory) return;
  const std::unique_ptr<DirectBlock> block(static_cast<DirectBlock*>(memory));
  {
    const std::lock_guard lock(mutex_);
    if (history_) history_->freed(*block, block->stream);
  }
  give_back(*block);
  count_out(block->size);
}

void DirectPool::record_stream(MemoryBlock* memory, StreamRef stream) {
  if (!memory) return;
  auto* const block = static_cast<DirectBlock*>(memory);
  const std::lock_guard lock(mutex_);
  auto& others = block->other_streams;
  if (stream == block->stream || std::ranges::find(others, stream) != others.end()) return;
  others.push_back(stream);
}

PoolStatistics DirectPool::statistics() const {
  const std::lock_guard lock(mutex_);
  return {.live_bytes = live_bytes_,
          .peak_live_bytes = peak_live_bytes_,
          .reserved_bytes = live_bytes_,
          .peak_reserved_bytes = peak_live_bytes_,
          .allocations = allocations_};
}

void DirectPool::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

std::size_t DirectPool::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void DirectPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_live_bytes_ = live_bytes_;
}

void DirectPool::set_high_water(std::size_t bytes, std::function<void(std::size_t)> reached) {
  const std::lock_guard lock(mutex_);
  high_water_ = bytes;
  reached_ = std::move(reached);
}

void DirectPool::record_history(std::optional<std::size_t> max_events) {
  auto history = max_events ? std::make_unique<detail::AllocationHistory>(*max_events) : nullptr;
  const std::lock_guard lock(mutex_);
  history_ = std::move(history);
}

MemorySnapshot DirectPool::snapshot() const {
  MemorySnapshot snapshot{.device = device_,
                          .statistics = statistics(),
                          .streams = {},
                          .by_tag = {},
                          .segments = {},
                          .events = {},
                          .tags = {}};
  const std::lock_guard lock(mutex_);
  if (history_) history_->describe(snapshot);
  return snapshot;
}

/// Before the memory is asked for, so that no two threads pass the limit together.
void DirectPool::count_in(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  if (live_bytes_ > limit_ || bytes > limit_ - live_bytes_) {
    lock.unlock();
    throw_out_of_memory(bytes, {});
  }
  live_bytes_ += bytes;
}

void DirectPool::count_out(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  live_bytes_ -= bytes;
}

void DirectPool::throw_out_of_memory(std::size_t bytes, StreamRef stream) {
  const std::lock_guard lock(mutex_);
  MemoryShortage shortage{.device = device_,
                          .wanted_bytes = bytes,
                          .live_bytes = live_bytes_,
                          .reserved_bytes = live_bytes_,
                          .limit_bytes = limit_,
                          .owners = {}};
  if (history_) {
    history_->out_of_memory(bytes, stream);
    shortage.owners = history_->owners();
    if (shortage.owners.size() > 10) shortage.owners.resize(10);
  }
  throw PoolOutOfMemory(std::move(shortage));
}

}  // namespace lockstep
