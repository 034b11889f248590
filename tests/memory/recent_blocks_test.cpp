#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "memory/caching_pool.hpp"
#include "memory/spin_lock.hpp"

namespace lockstep {
namespace {

/// Host memory that counts what is out.
struct CountingUpstream {
  std::size_t* held;
  void* allocate(std::size_t bytes) {
    *held += bytes;
    return ::operator new (bytes, std::align_val_t{4096});
  }
  void deallocate(void* data, std::size_t bytes) noexcept {
    *held -= bytes;
    ::operator delete (data, std::align_val_t{4096});
  }
};

class RecentBlocks : public ::testing::Test {
 protected:
  std::size_t held = 0;
  CachingPool<CountingUpstream> pool{{&held},
                                     device_runtime(DeviceType::cpu),
                                     cpu,
                                     {.granularity = 64, .small_limit = std::size_t{2} << 20}};
};

TEST_F(RecentBlocks, AreGivenOutAgainLastFirst) {
  MemoryBlock* a = pool.allocate(100, {});
  MemoryBlock* b = pool.allocate(100, {});
  void *first = a->data, *second = b->data;
  EXPECT_NE(first, second);
  pool.deallocate(a);
  pool.deallocate(b);
  b = pool.allocate(128, {});
  a = pool.allocate(65, {});
  EXPECT_EQ(b->data, second);
  EXPECT_EQ(a->data, first);
  pool.deallocate(a);
  pool.deallocate(b);
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
  EXPECT_EQ(pool.statistics().upstream_allocations, 1u);
}

TEST_F(RecentBlocks, ServeOnlyTheirOwnSizeAndStream) {
  MemoryBlock* a = pool.allocate(128, {});
  void* first = a->data;
  pool.deallocate(a);
  MemoryBlock* other_size = pool.allocate(64, {});
  EXPECT_NE(other_size->data, first);
  const StreamRef other_stream{cpu, &held};
  MemoryBlock* elsewhere = pool.allocate(128, other_stream);
  EXPECT_NE(elsewhere->data, first);
  pool.deallocate(other_size);
  pool.deallocate(elsewhere);
}

TEST_F(RecentBlocks, CoalesceBeforeThePoolGrows) {
  constexpr std::size_t segment = std::size_t{2} << 20;
  std::vector<MemoryBlock*> blocks;
  for (std::size_t i = 0; i < segment / 64; ++i) blocks.push_back(pool.allocate(64, {}));
  for (MemoryBlock* block : blocks) pool.deallocate(block);
  MemoryBlock* whole = pool.allocate(segment, {});
  EXPECT_EQ(pool.statistics().upstream_allocations, 1u);
  pool.deallocate(whole);
}

TEST_F(RecentBlocks, DoNotKeepASegmentFromTheUpstream) {
  pool.deallocate(pool.allocate(64, {}));
  pool.deallocate(pool.allocate(4096, {}));
  EXPECT_GT(held, 0u);
  pool.release_cached();
  EXPECT_EQ(held, 0u);
}

TEST(SpinLock, LetsOneThreadInAtATimeAlsoWhereAHolderSleeps) {
  detail::SpinLock lock;
  int inside = 0, most = 0, entries = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 1000; ++turn) {
        const std::lock_guard guard(lock);
        most = std::max(most, ++inside);
        if (turn % 250 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++entries;
        --inside;
      }
    });
  threads.clear();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(entries, 4000);
}

}  // namespace
}  // namespace lockstep
