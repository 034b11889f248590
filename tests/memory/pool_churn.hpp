#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/memory/out_of_memory.hpp"

/// @file
/// Blocks that come and go at random, in memory that is nearly full.

namespace lockstep::testing {

/// What a churn is to be.
struct ChurnOptions {
  std::size_t capacity = 0;  ///< bytes that the pool's upstream has
  std::size_t page = 0;      ///< in which they can be put elsewhere
  int operations = 0;
  std::vector<StreamRef> streams = {};
  /// Writes a mark into a block, and looks whether it is there still. May be empty.
  std::function<void(const MemoryBlock&, StreamRef, unsigned char)> write = {};
  std::function<bool(const MemoryBlock&, StreamRef, unsigned char)> is_intact = {};
};

/// Requests of 1 byte to 32 MiB of a pool over pages.
class PoolChurn {
 public:
  PoolChurn(MemoryPool& pool, ChurnOptions options) : pool_(pool), options_(std::move(options)) {}

  /// Allocates and frees until the operations are done, then frees all.
  /// @return how often a request failed though its size, rounded up to pages, was free.
  int run() {
    int needless = 0;
    for (int i = 0; i < options_.operations; ++i) {
      if (!held_.empty() && random_() % 16 < 7) {
        free_one(random_() % held_.size());
        continue;
      }
      const std::size_t size = 1 + random_() % ((std::size_t{1} << 12) << random_() % 13);
      const StreamRef stream = options_.streams[random_() % options_.streams.size()];
      try {
        held_.push_back({pool_.allocate(size, stream), stream, static_cast<unsigned char>(i)});
        const Held& last = held_.back();
        if (options_.write) options_.write(*last.block, stream, last.mark);
      } catch (const PoolOutOfMemory& error) {
        ++failures_;
        const std::size_t pages = (size + options_.page - 1) / options_.page * options_.page;
        needless += options_.capacity - error.shortage().reserved_bytes >= pages;
        free_where_live_ += options_.capacity - error.shortage().live_bytes >= 2 * pages;
        while (held_.size() > 4) free_one(random_() % held_.size());
      }
      if (i % 100 == 0) {
        pool_.trim(0);
        expect_little_waste(pool_.snapshot());
      }
    }
    while (!held_.empty()) free_one(0);
    pool_.release_cached();
    EXPECT_EQ(pool_.statistics().reserved_bytes, 0u);
    return needless;
  }

  /// Requests that failed; those of them for which twice their pages were nobody's.
  int failures() const { return failures_; }
  int failures_beside_free_memory() const { return free_where_live_; }

 private:
  struct Held {
    MemoryBlock* block;
    StreamRef stream;
    unsigned char mark;
  };

  void free_one(std::size_t index) {
    const Held held = held_[index];
    EXPECT_TRUE(!options_.is_intact || options_.is_intact(*held.block, held.stream, held.mark));
    pool_.deallocate(held.block);
    held_[index] = held_.back();
    held_.pop_back();
  }
  /// Less than two pages beside each run of blocks that are out.
  void expect_little_waste(const MemorySnapshot& snapshot) const {
    if (!options_.write) return;
    for (const MemorySegmentInfo& segment : snapshot.segments) {
      std::size_t run = 0;
      for (const MemoryBlockInfo& block : segment.blocks) {
        run = block.state == "inactive" ? run + block.bytes : 0;
        ASSERT_LT(run, 2 * options_.page);
      }
    }
  }

  MemoryPool& pool_;
  ChurnOptions options_;
  std::minstd_rand random_{5};
  std::vector<Held> held_;
  int failures_ = 0, free_where_live_ = 0;
};

}  // namespace lockstep::testing
