#include "memory/paged_upstream.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/memory/out_of_memory.hpp"
#include "memory/caching_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "support/fake_runtime.hpp"

// Segments that grow and shrink by pages.

namespace lockstep {
namespace {

constexpr std::size_t MiB = std::size_t{1} << 20, page = HostVirtualMemory::page;

/// Memory of the host, of which there is little.
struct ScarceMemory : HostVirtualMemory {
  std::size_t* mapped;
  std::size_t capacity;
  bool map(void* at, std::size_t bytes) const noexcept {
    if (bytes > capacity - *mapped || !HostVirtualMemory::map(at, bytes)) return false;
    *mapped += bytes;
    return true;
  }
  void unmap(void* at, std::size_t bytes) const noexcept {
    *mapped -= bytes;
    HostVirtualMemory::unmap(at, bytes);
  }
};

TEST(PagedUpstream, GrowsInPlaceAndShrinksByPages) {
  std::size_t mapped = 0;
  PagedUpstream<ScarceMemory> upstream({{}, &mapped, 6 * page}, 8 * page);
  auto* const data = static_cast<std::byte*>(upstream.allocate(2 * page));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % page, 0u);
  EXPECT_TRUE(upstream.extend(data + 2 * page, 3 * page));
  std::memset(data, 1, 5 * page);
  EXPECT_FALSE(upstream.extend(data + 5 * page, 2 * page));  // no memory
  EXPECT_FALSE(upstream.extend(data + 2 * page, page));      // not the end
  upstream.deallocate(data + page, 2 * page);
  EXPECT_FALSE(upstream.extend(data + page, 3 * page));  // another piece follows
  EXPECT_TRUE(upstream.extend(data + page, page));
  EXPECT_EQ(data[page], std::byte{0});
  EXPECT_EQ(data[3 * page], std::byte{1});
  upstream.deallocate(data, 2 * page);
  upstream.deallocate(data + 3 * page, 2 * page);
  EXPECT_EQ(mapped, 0u);
}

class GrowablePool : public ::testing::Test {
 protected:
  static constexpr std::size_t capacity = 24 * page;

  struct Held {
    MemoryBlock* block;
    unsigned char mark;
  };

  /// Blocks that come and go at random, in memory that is nearly full.
  /// @return how often a request failed though its pages were free.
  template <class Pool>
  int churn(Pool& pool, int operations, bool touch) {
    std::minstd_rand random(5);
    std::vector<Held> held;
    int needless = 0;
    const auto free_one = [&](std::size_t index) {
      EXPECT_TRUE(!touch || is_intact(held[index]));
      pool.deallocate(held[index].block);
      held[index] = held.back();
      held.pop_back();
    };
    for (int i = 0; i < operations; ++i) {
      if (!held.empty() && random() % 16 < 7) {
        free_one(random() % held.size());
        continue;
      }
      const std::size_t size = 1 + random() % ((std::size_t{1} << 12) << random() % 13);
      const StreamRef stream{cpu, &streams_[random() % 2]};
      try {
        held.push_back({pool.allocate(size, stream), static_cast<unsigned char>(i)});
        if (touch) std::memset(held.back().block->data, held.back().mark, 64);
      } catch (const PoolOutOfMemory& error) {
        const std::size_t pages = (size + page - 1) / page * page;
        const std::size_t there = capacity - error.shortage().live_bytes;
        const std::size_t unmapped = capacity - error.shortage().reserved_bytes;
        needless += touch ? unmapped >= pages : there >= 2 * pages;
        while (held.size() > 4) free_one(random() % held.size());
      }
      if (i % 100 == 0 && touch) {
        pool.trim(0);
        expect_little_waste(pool.snapshot());
      }
    }
    while (!held.empty()) free_one(0);
    pool.release_cached();
    EXPECT_EQ(pool.statistics().reserved_bytes, 0u);
    return needless;
  }

 private:
  static bool is_intact(const Held& held) {
    const auto* data = static_cast<const unsigned char*>(held.block->data);
    return std::all_of(data, data + 64, [&](unsigned char byte) { return byte == held.mark; });
  }
  /// Less than two pages beside each run of blocks that are out.
  static void expect_little_waste(const MemorySnapshot& snapshot) {
    for (const MemorySegmentInfo& segment : snapshot.segments) {
      std::size_t run = 0;
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        run = segment.blocks[i].state == "inactive" ? run + segment.blocks[i].bytes : 0;
        ASSERT_LT(run, 2 * page);
      }
    }
  }
  char streams_[2] = {};
};

TEST_F(GrowablePool, ServesARequestWheneverItsPagesAreFreeSomewhere) {
  testing::FakeRuntime runtime;
  std::size_t mapped = 0;
  CachingPool<PagedUpstream<ScarceMemory>> pool({{{}, &mapped, capacity}, 2 * capacity}, runtime,
                                                cpu);
  EXPECT_EQ(churn(pool, 20'000, true), 0);
  EXPECT_EQ(mapped, 0u);
}

// Else the test above would say little.
TEST_F(GrowablePool, DoesWhatSegmentsThatDoNotGrowCannot) {
  testing::FakeRuntime runtime;
  testing::UpstreamLog log;
  log.capacity = capacity;
  CachingPool<testing::FakeUpstream> pool({&log}, runtime, cpu);
  EXPECT_GT(churn(pool, 20'000, false), 0);
}

TEST_F(GrowablePool, AsksForTheMissingPagesOnly) {
  testing::FakeRuntime runtime;
  std::size_t mapped = 0;
  CachingPool<PagedUpstream<ScarceMemory>> pool({{{}, &mapped, capacity}, 2 * capacity}, runtime,
                                                cpu);
  pool.deallocate(pool.allocate(10 * MiB, {}));
  MemoryBlock* const block = pool.allocate(12 * MiB, {});
  EXPECT_EQ(pool.statistics().reserved_bytes, 12 * MiB);
  EXPECT_EQ(mapped, 12 * MiB);
  pool.deallocate(block);
}

}  // namespace
}  // namespace lockstep
