#include "memory/pool_report.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace detail {
namespace {

constexpr std::size_t owners_told = 10;

template <class Visit>
void each_block(const std::vector<Segment>& segments, Visit&& visit) {
  for (const Segment& segment : segments)
    for (const PoolBlock* block = segment.first; block; block = block->next) visit(*block);
}

std::vector<MemoryOwner> owners_by_size(const std::vector<Segment>& segments) {
  std::map<std::size_t, std::size_t> blocks;
  each_block(segments, [&](const PoolBlock& block) {
    if (block.in(BlockState::out)) ++blocks[block.size];
  });
  std::vector<MemoryOwner> owners;
  for (const auto& [size, count] : blocks)
    owners.push_back({"blocks of " + std::to_string(size) + " bytes", size * count, count});
  std::ranges::sort(owners, std::ranges::greater(), &MemoryOwner::bytes);
  return owners;
}

std::string_view state_of(const PoolBlock& block) {
  if (block.in(BlockState::out)) return "active_allocated";
  return block.in(BlockState::waiting) ? "active_pending_free" : "inactive";
}

}  // namespace

std::vector<StreamMemory> stream_memory(const StreamListsVector& streams,
                                        const std::vector<Segment>& segments) {
  std::map<const StreamLists*, StreamMemory> found;
  each_block(segments, [&](const PoolBlock& block) {
    StreamMemory& memory = found[block.lists];
    if (block.in(BlockState::out)) {
      memory.live_bytes += block.size;
      ++memory.live_blocks;
    } else if (block.in(BlockState::waiting)) {
      memory.waiting_bytes += block.size;
    } else {
      memory.free_bytes += block.size;
      memory.largest_free_block_bytes = std::max(memory.largest_free_block_bytes, block.size);
    }
  });
  std::vector<StreamMemory> all;
  for (const auto& lists : streams) {
    all.push_back(found[lists.get()]);
    all.back().stream = lists->stream;
  }
  return all;
}

void describe_shortage(MemoryShortage& shortage, const StreamListsVector& streams,
                       const std::vector<Segment>& segments, const AllocationHistory* history) {
  for (const StreamMemory& memory : stream_memory(streams, segments)) {
    shortage.free_bytes += memory.free_bytes;
    shortage.largest_free_block_bytes =
        std::max(shortage.largest_free_block_bytes, memory.largest_free_block_bytes);
  }
  shortage.owners = history ? history->owners() : owners_by_size(segments);
  if (shortage.owners.size() > owners_told) shortage.owners.resize(owners_told);
}

std::vector<MemorySegmentInfo> segment_infos(const std::vector<Segment>& segments,
                                             const AllocationHistory* history) {
  std::vector<MemorySegmentInfo> infos;
  for (const Segment& segment : segments) {
    MemorySegmentInfo info{.address = reinterpret_cast<std::uintptr_t>(segment.data),
                           .bytes = segment.size,
                           .stream = segment.first->lists->stream,
                           .small = segment.first->small,
                           .blocks = {}};
    for (const PoolBlock* block = segment.first; block; block = block->next) {
      MemoryBlockInfo& told = info.blocks.emplace_back();
      told = {.address = reinterpret_cast<std::uintptr_t>(block->data),
              .bytes = block->size,
              .requested_bytes = block->size,
              .state = state_of(*block),
              .tag = {}};
      const auto* owned =
          history && block->in(BlockState::out) ? history->owner_of(block->data) : nullptr;
      if (!owned) continue;
      told.requested_bytes = owned->requested_bytes;
      told.tag = history->text_of(owned->tag);
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace detail

std::string PoolOutOfMemory::message(const MemoryShortage& shortage) {
  lockstep::detail::TextStream out;
  out << "out of memory on " << shortage.device << ": asked for " << shortage.wanted_bytes
      << " bytes; " << shortage.live_bytes << " are live and " << shortage.reserved_bytes
      << " reserved by the pool, of which " << shortage.free_bytes
      << " are free, the largest free block " << shortage.largest_free_block_bytes << " ("
      << static_cast<int>(100 * shortage.fragmentation() + 0.5) << " % fragmentation)";
  if (shortage.limit_bytes != ~std::size_t{0}) out << "; the limit is " << shortage.limit_bytes;
  const char* before = "; held by ";
  for (const MemoryOwner& owner : shortage.owners) {
    out << before << owner.tag << ": " << owner.bytes << " bytes in " << owner.blocks
        << (owner.blocks == 1 ? " block" : " blocks");
    before = ", ";
  }
  return out.str();
}

}  // namespace lockstep
