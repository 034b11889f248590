#pragma once

#include <memory>
#include <vector>

#include "lockstep/memory/memory_snapshot.hpp"
#include "lockstep/memory/out_of_memory.hpp"
#include "memory/allocation_history.hpp"
#include "memory/pool_block.hpp"

/// @file
/// What a caching pool says of itself. Called with its lock held.

namespace lockstep::detail {

using StreamListsVector = std::vector<std::unique_ptr<StreamLists>>;

/// Counts each stream's blocks.
std::vector<StreamMemory> stream_memory(const StreamListsVector& streams,
                                        const std::vector<Segment>& segments);

/// Fills in free memory and the largest owners.
/// @param history tells the owners by tag; with null they are told apart by the size of their
/// blocks.
void describe_shortage(MemoryShortage& shortage, const StreamListsVector& streams,
                       const std::vector<Segment>& segments, const AllocationHistory* history);

/// Each segment with its blocks.
std::vector<MemorySegmentInfo> segment_infos(const std::vector<Segment>& segments,
                                             const AllocationHistory* history);

}  // namespace lockstep::detail
