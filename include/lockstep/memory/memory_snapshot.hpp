#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/memory/allocator.hpp"

/// @file
/// What a pool holds, and what happened in it.

namespace lockstep {

/// One block of a segment.
struct MemoryBlockInfo {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  /// What was asked for, where the history knows; else `bytes`.
  std::size_t requested_bytes = 0;
  /// PyTorch's words: "active_allocated", "active_pending_free" (other streams use it) or
  /// "inactive".
  std::string_view state;
  std::string tag;  ///< who allocated it, where the history knows
};

/// One piece of memory from the upstream.
struct MemorySegmentInfo {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  StreamRef stream;
  bool small = false;  ///< serves small requests
  std::vector<MemoryBlockInfo> blocks;
};

/// What can happen in a pool, in PyTorch's words.
enum class MemoryAction : std::uint8_t {
  alloc,
  free_requested,  ///< the program returned it
  free_completed,  ///< no stream uses it any more
  segment_alloc,
  segment_free,
  oom,
};

/// One event of a pool's history.
struct MemoryEvent {
  MemoryAction action = MemoryAction::alloc;
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  StreamRef stream;
  std::int64_t time_us = 0;  ///< since the history began
  std::uint32_t tag = 0;     ///< index into MemorySnapshot::tags
};

/// Memory of one stream.
struct StreamMemory {
  StreamRef stream;
  std::size_t live_bytes = 0;
  std::size_t live_blocks = 0;
  std::size_t free_bytes = 0;
  std::size_t largest_free_block_bytes = 0;
  std::size_t waiting_bytes = 0;  ///< returned, in use on other streams
};

/// Memory of one tag (MemoryTag; module and op).
struct TagMemory {
  std::string tag;
  std::size_t live_bytes = 0;
  std::size_t live_blocks = 0;
  std::size_t peak_live_bytes = 0;
};

/// The whole state of a pool. Streams and segments are always there; tags and events where the
/// history is recorded (`record_memory_history`), from when that began.
struct MemorySnapshot {
  Device device;
  PoolStatistics statistics;
  std::vector<StreamMemory> streams;
  std::vector<TagMemory> by_tag;  ///< the largest peaks first
  std::vector<MemorySegmentInfo> segments;
  std::vector<MemoryEvent> events;  ///< the oldest first
  std::vector<std::string> tags;    ///< which events name by their index
  std::uint64_t lost_events = 0;    ///< older ones, for which there was no room
};

/// The snapshots as JSON, with the names of PyTorch's `torch.cuda.memory._snapshot` where it has
/// one: `segments` and `device_traces`; and `lockstep`, with what is counted.
std::string to_json(const std::vector<MemorySnapshot>& snapshots);

}  // namespace lockstep
