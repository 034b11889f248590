#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "lockstep/memory/memory_snapshot.hpp"
#include "lockstep/memory/out_of_memory.hpp"
#include "memory/allocation_tags.hpp"

/// @file
/// What a pool records of itself while it is told to.

namespace lockstep::detail {

/// The last events of a pool, and who has what. Not for several threads: the pool's lock is held.
class AllocationHistory {
 public:
  /// What is known of a block that is out.
  struct Owned {
    std::uint32_t tag;
    std::size_t requested_bytes, bytes;
  };

  /// @param max_events older ones make room for newer ones.
  explicit AllocationHistory(std::size_t max_events);

  void allocated(const MemoryBlock& block, std::size_t requested_bytes, StreamRef stream);
  /// The program returned the block; other streams still use it.
  void free_requested(const MemoryBlock& block, StreamRef stream) noexcept;
  /// It may be allocated again.
  void freed(const MemoryBlock& block, StreamRef stream) noexcept;
  /// A segment came or went.
  void segment(MemoryAction action, const void* data, std::size_t bytes, StreamRef stream) noexcept;
  void out_of_memory(std::size_t bytes, StreamRef stream) noexcept;

  /// What is known of the block that begins at `data`, or null.
  const Owned* owner_of(const void* data) const;
  const std::string& text_of(std::uint32_t tag) const { return tags_.texts()[tag]; }
  /// Who has memory, the largest first.
  std::vector<MemoryOwner> owners() const;
  /// Fills in tags and events.
  void describe(MemorySnapshot& snapshot) const;

 private:
  struct TagCounts {
    std::size_t live_bytes = 0, live_blocks = 0, peak_live_bytes = 0;
  };

  void add(MemoryAction action, const void* data, std::size_t bytes, StreamRef stream,
           std::uint32_t tag) noexcept;
  std::uint32_t forget(const MemoryBlock& block) noexcept;

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const std::size_t max_events_;
  std::vector<MemoryEvent> events_;  // a ring once it is full
  std::uint64_t added_ = 0;
  AllocationTags tags_;
  std::vector<TagCounts> counts_;
  std::unordered_map<const void*, Owned> live_;
  std::unordered_map<const void*, std::uint32_t> waiting_;  // tags
};

}  // namespace lockstep::detail
