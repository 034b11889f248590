#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/slab.hpp"
#include "lockstep/memory/allocator.hpp"
#include "memory/free_lists.hpp"

/// @file
/// The pieces of a caching pool: segments of the upstream, and the blocks that they are cut into.

namespace lockstep::detail {

struct StreamLists;

/// Where a block is.
enum class BlockState : std::uint8_t {
  free,     ///< in the free lists, or about to be
  out,      ///< handed out
  recent,   ///< returned, kept by its exact size
  waiting,  ///< returned, in use on other streams
};

/// A piece of a segment. The neighbours of a block make a chain from the segment's first to its
/// last; neighbours that are free are joined.
struct PoolBlock : MemoryBlock, SlabAllocated {
  PoolBlock* previous = nullptr;  // neighbours in the segment
  PoolBlock* next = nullptr;
  PoolBlock* previous_free = nullptr;
  PoolBlock* next_free = nullptr;
  StreamLists* lists = nullptr;
  // Written without the pool's lock where a block goes between its user and a RecentCache.
  std::atomic<BlockState> state{BlockState::free};
  bool small = true;
  SizeClass size_class;  // while it is in the free lists
  std::vector<StreamRef> other_streams;

  bool is_free() const noexcept { return in(BlockState::free); }
  bool in(BlockState which) const noexcept {
    return state.load(std::memory_order_relaxed) == which;
  }
  void set(BlockState which) noexcept { state.store(which, std::memory_order_relaxed); }
  std::byte* begin() const noexcept { return static_cast<std::byte*>(data); }
  std::byte* end() const noexcept { return begin() + size; }
};

/// The free blocks of one stream.
struct StreamLists {
  StreamRef stream;
  FreeLists<PoolBlock> small;
  FreeLists<PoolBlock> large;
  std::uint32_t open_in = 0;  // the caches that may keep its blocks, by bit
  FreeLists<PoolBlock>& of(const PoolBlock* block) { return block->small ? small : large; }
};

/// Memory of the upstream, all of one stream and one kind of size.
struct Segment {
  std::byte* data;
  std::size_t size;
  PoolBlock* first;
  std::byte* end() const noexcept { return data + size; }
};

/// Joins a block's next neighbour to it. Neither is in the free lists.
inline void absorb_next(PoolBlock* block) {
  PoolBlock* next = block->next;
  block->size += next->size;
  block->next = next->next;
  if (block->next) block->next->previous = block;
  delete next;
}

/// Puts a block into the free lists, joined with free neighbours.
inline void make_free(PoolBlock* block) {
  StreamLists& lists = *block->lists;
  block->set(BlockState::free);
  if (PoolBlock* next = block->next; next && next->is_free()) {
    lists.of(next).remove(next);
    absorb_next(block);
  }
  if (PoolBlock* previous = block->previous; previous && previous->is_free()) {
    lists.of(previous).remove(previous);
    absorb_next(previous);
    block = previous;
  }
  lists.of(block).insert(block);
}

/// Cuts a block after `size` bytes; the rest goes to the free lists.
/// @param rest a fresh node for it
inline void split(PoolBlock* block, std::size_t size, PoolBlock* rest) noexcept {
  rest->data = block->begin() + size;
  rest->size = block->size - size;
  rest->lists = block->lists;
  rest->small = block->small;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
  block->lists->of(rest).insert(rest);
}

}  // namespace lockstep::detail
