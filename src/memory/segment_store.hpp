#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "memory/allocation_history.hpp"
#include "memory/pool_block.hpp"
#include "memory/upstream.hpp"

/// @file
/// The memory that a caching pool holds from its upstream.

namespace lockstep {

/// Sizes that shape a pool.
struct PoolOptions {
  /// Every block is a multiple of this, a power of two.
  std::size_t granularity = 512;
  /// Requests up to this share segments of `small_segment` bytes.
  std::size_t small_limit = std::size_t{1} << 20;
  std::size_t small_segment = std::size_t{2} << 20;
  /// Larger requests get segments of their own size, rounded up to a multiple of this.
  std::size_t large_rounding = std::size_t{2} << 20;
  /// Larger requests may get so much more, rather than leave a piece that serves nobody.
  std::size_t large_rest = std::size_t{16} << 10;
  /// Refuse to hold more than this from the upstream.
  std::size_t limit = ~std::size_t{0};
  /// Memory goes back only where that is asked for (release_cached, trim, set_limit): something
  /// else than blocks, a graph, has its addresses.
  bool keeps = false;
};

namespace detail {

/// Segments, whose blocks are in the free lists of their stream when nobody has them. Not for
/// several threads: the pool's lock is held.
template <Upstream U>
class SegmentStore {
 public:
  SegmentStore(U upstream, const PoolOptions& options)
      : upstream_(std::move(upstream)), options_(options), limit_(options.limit) {}
  SegmentStore(const SegmentStore&) = delete;
  SegmentStore& operator=(const SegmentStore&) = delete;
  /// Returns all segments, whoever has their blocks.
  ~SegmentStore() {
    for (const Segment& segment : segments_) {
      upstream_.deallocate(segment.data, segment.size);
      for (PoolBlock* block = segment.first; block;) delete std::exchange(block, block->next);
    }
  }

  /// Puts a block of at least `size` bytes into the lists. False where the upstream has no more, or
  /// the limit is near.
  bool grow(StreamLists& lists, std::size_t size) {
    const bool small = size <= options_.small_limit;
    if constexpr (GrowableUpstream<U>)
      if (extend(lists, size, small)) return true;
    const std::size_t bytes =
        small ? options_.small_segment : round_up(size, options_.large_rounding);
    auto block = std::make_unique<PoolBlock>();
    segments_.reserve(segments_.size() + 1);
    void* const data = fits(bytes) ? upstream_.allocate(bytes) : nullptr;
    if (!data) return false;
    block->data = data;
    block->size = bytes;
    block->lists = &lists;
    block->small = small;
    segments_.push_back({block->begin(), bytes, block.get()});
    count_growth(data, bytes, lists.stream);
    make_free(block.release());
    return true;
  }

  /// What is asked of the upstream for a request that nothing free serves, at most.
  std::size_t growth(std::size_t size) const {
    return size <= options_.small_limit ? options_.small_segment : round_up(size, page_bytes());
  }

  /// Returns segments without a block out, of a growable upstream pages without one, until no more
  /// than `keep` bytes are held.
  /// @param wait waits for the work of a stream; called for those whose pages may go, before any
  /// does: what is free for the stream's later work may still be in use by its earlier.
  template <class Wait>
  void release(std::size_t keep, Wait&& wait) {
    if (reserved_ <= keep) return;
    std::vector<Segment> kept;
    kept.reserve(pieces());
    if constexpr (GrowableUpstream<U>)
      for (const StreamLists* lists : lists_with_pages()) wait(lists->stream);
    for (const Segment& segment : segments_) {
      if (reserved_ <= keep)
        kept.push_back(segment);
      else if constexpr (GrowableUpstream<U>)
        release_pages(segment, keep, kept);
      else if (!release_whole(segment))
        kept.push_back(segment);
    }
    segments_ = std::move(kept);
  }

  const std::vector<Segment>& segments() const noexcept { return segments_; }
  std::size_t reserved() const noexcept { return reserved_; }
  std::size_t peak_reserved() const noexcept { return peak_reserved_; }
  std::uint64_t allocations() const noexcept { return allocations_; }
  std::uint64_t frees() const noexcept { return frees_; }
  std::size_t limit() const noexcept { return limit_; }
  void set_limit(std::size_t bytes) noexcept { limit_ = bytes; }
  void reset_peak() noexcept { peak_reserved_ = reserved_; }
  /// Segments that come and go are told to the history, if there is one.
  void set_history(AllocationHistory* history) noexcept { history_ = history; }

 private:
  static constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }
  bool fits(std::size_t bytes) const { return reserved_ <= limit_ && bytes <= limit_ - reserved_; }

  /// More memory right behind a segment that the stream has.
  bool extend(StreamLists& lists, std::size_t size, bool small) {
    for (Segment& segment : segments_) {
      if (segment.first->lists != &lists || segment.first->small != small) continue;
      PoolBlock* last = segment.first;
      while (last->next) last = last->next;
      const std::size_t there = last->is_free() ? last->size : 0;
      const std::size_t bytes =
          small ? options_.small_segment : round_up(size - std::min(there, size), page_bytes());
      auto block = std::make_unique<PoolBlock>();
      if (!fits(bytes) || !upstream_.extend(segment.end(), bytes)) continue;
      block->data = segment.end();
      block->size = bytes;
      block->lists = &lists;
      block->small = small;
      block->previous = last;
      last->next = block.get();
      count_growth(segment.end(), bytes, lists.stream);
      segment.size += bytes;
      make_free(block.release());
      return true;
    }
    return false;
  }

  bool release_whole(const Segment& segment) noexcept {
    PoolBlock* const block = segment.first;
    if (!block->is_free() || block->next) return false;
    block->lists->of(block).remove(block);
    give_back(block->data, block->size, block->lists->stream);
    delete block;
    return true;
  }

  /// The most segments that a release can leave.
  std::size_t pieces() const noexcept {
    std::size_t count = segments_.size();
    if constexpr (GrowableUpstream<U>)
      for (const Segment& segment : segments_)
        for (const PoolBlock* block = segment.first; block; block = block->next)
          count += block->is_free();
    return count;
  }

  /// Streams that have whole pages free.
  std::vector<const StreamLists*> lists_with_pages() const {
    std::vector<const StreamLists*> found;
    for (const Segment& segment : segments_) {
      const StreamLists* const lists = segment.first->lists;
      if (std::find(found.begin(), found.end(), lists) != found.end()) continue;
      for (const PoolBlock* block = segment.first; block; block = block->next) {
        const auto [begin, end] = pages_in(segment, *block);
        if (!block->is_free() || begin >= end) continue;
        found.push_back(lists);
        break;
      }
    }
    return found;
  }

  /// Takes whole pages out of the free blocks of a segment, until no more than `keep` bytes are
  /// held; what is between goes to `kept`.
  void release_pages(const Segment& segment, std::size_t keep, std::vector<Segment>& kept) {
    Segment rest{segment.data, 0, segment.first};
    const auto close = [&](std::byte* end) {
      rest.size = static_cast<std::size_t>(end - rest.data);
      if (rest.size > 0) kept.push_back(rest);
    };
    for (PoolBlock* block = segment.first; block;) {
      PoolBlock* const next = block->next;
      const auto [begin, end] = pages_in(segment, *block);
      if (block->is_free() && begin < end && reserved_ > keep) {
        auto right = end < block->end() ? std::make_unique<PoolBlock>() : nullptr;
        give_back(begin, static_cast<std::size_t>(end - begin), block->lists->stream);
        rest.first = take_out(block, begin, end, std::move(right), [&] { close(begin); });
        rest.data = end;
      }
      block = next;
    }
    if (rest.first) close(segment.end());
  }

  /// Removes [begin, end) from a free block, whose right part begins a segment of its own.
  /// @param close called where the segment to the left is complete
  /// @return the first block to the right
  template <class Close>
  static PoolBlock* take_out(PoolBlock* block, std::byte* begin, std::byte* end,
                             std::unique_ptr<PoolBlock> right, Close&& close) {
    StreamLists& lists = *block->lists;
    PoolBlock* const next = block->next;
    lists.of(block).remove(block);
    if (right) {
      right->data = end;
      right->size = static_cast<std::size_t>(block->end() - end);
      right->lists = &lists;
      right->small = block->small;
      right->next = next;
    }
    PoolBlock* const first_right = right ? right.get() : next;
    if (next) next->previous = right.get();
    if (right) lists.of(right.get()).insert(right.release());
    block->next = nullptr;
    if (begin > block->begin()) {
      block->size = static_cast<std::size_t>(begin - block->begin());
      lists.of(block).insert(block);
    } else {
      if (block->previous) block->previous->next = nullptr;
      delete block;
    }
    close();
    return first_right;
  }

  /// The whole pages of a block. Segments begin and end with a page.
  std::pair<std::byte*, std::byte*> pages_in(const Segment& segment, const PoolBlock& block) const {
    const auto offset = static_cast<std::size_t>(block.begin() - segment.data);
    const std::size_t end = offset + block.size;
    return {segment.data + round_up(offset, page_bytes()),
            segment.data + end / page_bytes() * page_bytes()};
  }

  std::size_t page_bytes() const {
    if constexpr (GrowableUpstream<U>) return upstream_.page_bytes();
    return 1;
  }

  void count_growth(const void* data, std::size_t bytes, StreamRef stream) noexcept {
    ++allocations_;
    reserved_ += bytes;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    if (history_) history_->segment(MemoryAction::segment_alloc, data, bytes, stream);
  }

  void give_back(void* data, std::size_t bytes, StreamRef stream) noexcept {
    if (history_) history_->segment(MemoryAction::segment_free, data, bytes, stream);
    upstream_.deallocate(data, bytes);
    reserved_ -= bytes;
    ++frees_;
  }

  U upstream_;
  PoolOptions options_;
  std::size_t limit_;
  std::vector<Segment> segments_;
  AllocationHistory* history_ = nullptr;
  std::size_t reserved_ = 0, peak_reserved_ = 0;
  std::uint64_t allocations_ = 0, frees_ = 0;
};

}  // namespace detail
}  // namespace lockstep
