#include "memory/allocation_history.hpp"

#include <algorithm>

namespace lockstep::detail {

AllocationHistory::AllocationHistory(std::size_t max_events)
    : max_events_(std::max<std::size_t>(1, max_events)) {
  events_.reserve(max_events_);  // so that adding one cannot fail
}

void AllocationHistory::allocated(const MemoryBlock& block, std::size_t requested_bytes,
                                  StreamRef stream) {
  const std::uint32_t tag = tags_.current();
  if (tag >= counts_.size()) counts_.resize(tag + 1);
  live_.insert_or_assign(block.data, Owned{tag, requested_bytes, block.size});
  TagCounts& counts = counts_[tag];
  counts.live_bytes += block.size;
  ++counts.live_blocks;
  counts.peak_live_bytes = std::max(counts.peak_live_bytes, counts.live_bytes);
  add(MemoryAction::alloc, block.data, block.size, stream, tag);
}

std::uint32_t AllocationHistory::forget(const MemoryBlock& block) noexcept {
  const auto found = live_.find(block.data);
  if (found == live_.end()) return 0;  // from before the history
  const Owned owned = found->second;
  live_.erase(found);
  counts_[owned.tag].live_bytes -= owned.bytes;
  --counts_[owned.tag].live_blocks;
  return owned.tag;
}

void AllocationHistory::free_requested(const MemoryBlock& block, StreamRef stream) noexcept {
  const std::uint32_t tag = forget(block);
  try {
    waiting_.insert_or_assign(block.data, tag);
  } catch (const std::bad_alloc&) {
    // The event of its end will go without the tag.
  }
  add(MemoryAction::free_requested, block.data, block.size, stream, tag);
}

void AllocationHistory::freed(const MemoryBlock& block, StreamRef stream) noexcept {
  std::uint32_t tag = 0;
  if (const auto found = waiting_.find(block.data); found != waiting_.end()) {
    tag = found->second;
    waiting_.erase(found);
  } else {
    tag = forget(block);
  }
  add(MemoryAction::free_completed, block.data, block.size, stream, tag);
}

void AllocationHistory::segment(MemoryAction action, const void* data, std::size_t bytes,
                                StreamRef stream) noexcept {
  add(action, data, bytes, stream, 0);
}

void AllocationHistory::out_of_memory(std::size_t bytes, StreamRef stream) noexcept {
  add(MemoryAction::oom, nullptr, bytes, stream, 0);
}

void AllocationHistory::add(MemoryAction action, const void* data, std::size_t bytes,
                            StreamRef stream, std::uint32_t tag) noexcept {
  using std::chrono::duration_cast;
  using std::chrono::microseconds;
  const auto time = duration_cast<microseconds>(std::chrono::steady_clock::now() - begin_);
  const MemoryEvent event{
      action, reinterpret_cast<std::uintptr_t>(data), bytes, stream, time.count(), tag};
  if (events_.size() < max_events_)
    events_.push_back(event);
  else
    events_[added_ % max_events_] = event;
  ++added_;
}

const AllocationHistory::Owned* AllocationHistory::owner_of(const void* data) const {
  const auto found = live_.find(data);
  return found == live_.end() ? nullptr : &found->second;
}

std::vector<MemoryOwner> AllocationHistory::owners() const {
  std::vector<MemoryOwner> owners;
  for (std::uint32_t tag = 0; tag < counts_.size(); ++tag)
    if (counts_[tag].live_blocks > 0)
      owners.push_back({text_of(tag), counts_[tag].live_bytes, counts_[tag].live_blocks});
  std::ranges::sort(owners, std::ranges::greater(), &MemoryOwner::bytes);
  return owners;
}

void AllocationHistory::describe(MemorySnapshot& snapshot) const {
  for (std::uint32_t tag = 0; tag < counts_.size(); ++tag)
    snapshot.by_tag.push_back({text_of(tag), counts_[tag].live_bytes, counts_[tag].live_blocks,
                               counts_[tag].peak_live_bytes});
  std::ranges::sort(snapshot.by_tag, std::ranges::greater(), &TagMemory::peak_live_bytes);
  snapshot.tags = tags_.texts();
  snapshot.lost_events = added_ - events_.size();
  const auto oldest = static_cast<std::ptrdiff_t>(added_ % max_events_);
  snapshot.events = events_;
  if (snapshot.lost_events > 0)
    std::ranges::rotate(snapshot.events, snapshot.events.begin() + oldest);
}

}  // namespace lockstep::detail
