#include "memory/caching_pool.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/fake_upstream.hpp"
#include "support/fake_runtime.hpp"

namespace lockstep {
namespace {

using testing::FakeRuntime;
using testing::FakeUpstream;
using ::testing::HasSubstr;
using testing::KiB;
using testing::MiB;
using testing::UpstreamLog;

// A granule of 512 bytes, small segments of 2 MiB; blocks above 32 KiB are not kept by exact size,
// so that they split and coalesce at once.
class CachingPoolTest : public ::testing::Test {
 protected:
  using Pool = CachingPool<FakeUpstream>;
  static std::uintptr_t address(const MemoryBlock* block) {
    return reinterpret_cast<std::uintptr_t>(block->data);
  }
  /// The text of the OutOfMemory that a request ends in.
  static std::string refusal(Pool& pool, std::size_t bytes, StreamRef stream) {
    try {
      pool.deallocate(pool.allocate(bytes, stream));
    } catch (const OutOfMemory& error) {
      return error.what();
    }
    return "not refused";
  }

  FakeRuntime runtime;
  UpstreamLog log;
  StreamRef a = runtime.create_stream(cpu, StreamPriority::normal);
  StreamRef b = runtime.create_stream(cpu, StreamPriority::normal);
  StreamRef c = runtime.create_stream(cpu, StreamPriority::normal);
  Pool pool{{&log}, runtime, cpu};
};

TEST_F(CachingPoolTest, RoundsSmallRequestsToTheGranularity) {
  for (const auto& [asked, got] : {std::pair<std::size_t, std::size_t>{1, 512},
                                   {512, 512},
                                   {513, 1024},
                                   {100 * KiB, 100 * KiB}}) {
    MemoryBlock* block = pool.allocate(asked, a);
    EXPECT_EQ(block->size, got);
    EXPECT_EQ(address(block) % 512, 0u);
    pool.deallocate(block);
  }
  EXPECT_EQ(log.allocations, 1);
  EXPECT_EQ(log.held_bytes, 2 * MiB);
}

TEST_F(CachingPoolTest, GivesLargeRequestsSegmentsOfTheirOwn) {
  MemoryBlock* small = pool.allocate(MiB, a);
  MemoryBlock* large = pool.allocate(MiB + 1, a);
  MemoryBlock* larger = pool.allocate(5 * MiB, a);
  EXPECT_EQ(log.held_bytes, 2 * MiB + 2 * MiB + 6 * MiB);
  for (MemoryBlock* block : {small, large, larger}) pool.deallocate(block);
}

TEST_F(CachingPoolTest, SplitsBlocksSideBySide) {
  MemoryBlock* first = pool.allocate(64 * KiB, a);
  MemoryBlock* second = pool.allocate(64 * KiB, a);
  EXPECT_EQ(address(second), address(first) + 64 * KiB);
  pool.deallocate(first);
  pool.deallocate(second);
}

TEST_F(CachingPoolTest, CoalescesNeighboursInAnyOrderOfReturn) {
  int order[] = {0, 1, 2, 3};
  do {
    std::vector<MemoryBlock*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(pool.allocate(512 * KiB, a));
    for (const int i : order) pool.deallocate(blocks[static_cast<std::size_t>(i)]);
    EXPECT_EQ(log.allocations, 1);
    pool.release_cached();  // only a whole free segment can go back
    EXPECT_EQ(log.held_bytes, 0u);
    log.allocations = 0;
  } while (std::next_permutation(std::begin(order), std::end(order)));
}

TEST_F(CachingPoolTest, KeepsASegmentWithOneBlockOut) {
  MemoryBlock* kept = pool.allocate(64 * KiB, a);
  pool.deallocate(pool.allocate(64 * KiB, a));
  pool.release_cached();
  EXPECT_EQ(log.held_bytes, 2 * MiB);
  pool.deallocate(kept);
  pool.release_cached();
  EXPECT_EQ(log.held_bytes, 0u);
}

TEST_F(CachingPoolTest, ReusesOnTheSameStreamAtOnce) {
  for (const std::size_t size : {std::size_t{512}, 100 * KiB, 3 * MiB}) {
    MemoryBlock* block = pool.allocate(size, a);
    const std::uintptr_t before = address(block);
    FakeRuntime::queue_work(a);
    pool.deallocate(block);
    block = pool.allocate(size, a);
    EXPECT_EQ(address(block), before) << size;
    pool.deallocate(block);
  }
  EXPECT_EQ(runtime.host_waits, 0);
  EXPECT_TRUE(runtime.events.empty());
}

TEST_F(CachingPoolTest, DoesNotGiveABlockToAnotherStream) {
  MemoryBlock* block = pool.allocate(100 * KiB, a);
  const std::uintptr_t before = address(block);
  pool.deallocate(block);
  block = pool.allocate(100 * KiB, b);
  EXPECT_NE(address(block), before);
  EXPECT_EQ(log.allocations, 2);
  pool.deallocate(block);
}

class CachingPoolRecorded : public CachingPoolTest,
                            public ::testing::WithParamInterface<std::size_t> {};

TEST_P(CachingPoolRecorded, ReusesOnlyOnceAllRecordedStreamsAreThrough) {
  MemoryBlock* block = pool.allocate(GetParam(), a);
  const std::uintptr_t before = address(block);
  for (const StreamRef stream : {a, b, c, b}) pool.record_stream(block, stream);
  FakeRuntime::queue_work(b);
  FakeRuntime::queue_work(c);
  pool.deallocate(block);
  EXPECT_EQ(runtime.events.size(), 2u);  // b once, a not at all

  std::vector<MemoryBlock*> others;
  const auto next = [&] {
    others.push_back(pool.allocate(GetParam(), a));
    return address(others.back());
  };
  EXPECT_NE(next(), before);
  FakeRuntime::finish(b);
  FakeRuntime::queue_work(b);  // later work does not count
  EXPECT_NE(next(), before);
  FakeRuntime::finish(c);
  EXPECT_EQ(next(), before);
  EXPECT_TRUE(runtime.events.empty());
  EXPECT_EQ(runtime.host_waits, 0);
  for (MemoryBlock* other : others) pool.deallocate(other);
}

// The smallest, which pass through the lists by exact size; the others; and whole segments.
INSTANTIATE_TEST_SUITE_P(Sizes, CachingPoolRecorded, ::testing::Values(512, 100 * KiB, 2 * MiB));

TEST_F(CachingPoolTest, KeepsAWaitingBlockOutOfCoalescing) {
  MemoryBlock* first = pool.allocate(MiB, a);
  MemoryBlock* second = pool.allocate(MiB, a);
  pool.record_stream(first, b);
  FakeRuntime::queue_work(b);
  pool.deallocate(first);
  pool.deallocate(second);
  MemoryBlock* whole = pool.allocate(512 * KiB, a);
  EXPECT_EQ(address(whole), log.held.begin()->first + MiB);
  pool.deallocate(whole);
}

TEST_F(CachingPoolTest, WaitsForOtherStreamsBeforeItReturnsMemory) {
  MemoryBlock* block = pool.allocate(MiB, a);
  pool.record_stream(block, b);
  FakeRuntime::queue_work(b);
  pool.deallocate(block);
  pool.release_cached();
  EXPECT_EQ(runtime.host_waits, 1);
  EXPECT_EQ(log.held_bytes, 0u);
}

TEST_F(CachingPoolTest, FlushesAndTriesAgainWhenTheUpstreamIsFull) {
  log.capacity = 8 * MiB;
  pool.deallocate(pool.allocate(4 * MiB, a));
  pool.deallocate(pool.allocate(4 * MiB, b));
  MemoryBlock* block = pool.allocate(8 * MiB, a);
  EXPECT_EQ(pool.statistics().out_of_memory_retries, 1u);
  EXPECT_EQ(pool.statistics().upstream_frees, 2u);
  pool.deallocate(block);
}

TEST_F(CachingPoolTest, WaitsForBlocksInFlightRatherThanFail) {
  log.capacity = 4 * MiB;
  MemoryBlock* block = pool.allocate(4 * MiB, a);
  pool.record_stream(block, b);
  FakeRuntime::queue_work(b);
  pool.deallocate(block);
  block = pool.allocate(4 * MiB, a);
  EXPECT_EQ(runtime.host_waits, 1);
  pool.deallocate(block);
}

TEST_F(CachingPoolTest, HoldsNoMoreThanItsLimit) {
  Pool limited{{&log}, runtime, cpu, {.limit = 4 * MiB}};
  MemoryBlock* block = limited.allocate(3 * MiB, a);
  EXPECT_THAT(refusal(limited, 2 * MiB, a), HasSubstr("the limit is 4194304"));
  limited.deallocate(block);
  block = limited.allocate(2 * MiB, b);  // what stream a returned makes room
  EXPECT_LE(limited.statistics().peak_reserved_bytes, 4 * MiB);
  limited.deallocate(block);
}

TEST_F(CachingPoolTest, GivesNothingForZeroBytes) {
  EXPECT_EQ(pool.allocate(0, a), nullptr);
  pool.deallocate(nullptr);
  pool.record_stream(nullptr, b);
  EXPECT_EQ(pool.statistics().allocations, 0u);
}

TEST_F(CachingPoolTest, RefusesWhatNoAddressSpaceHolds) {
  constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes :
       {std::size_t{1} << 50, (std::size_t{1} << 63) + 1, largest - 511, largest - 1, largest})
    EXPECT_THAT(refusal(pool, bytes, a), HasSubstr("exceeds any address space")) << bytes;
  EXPECT_EQ(log.allocations, 0);
}

TEST_F(CachingPoolTest, CountsExactly) {
  MemoryBlock* x = pool.allocate(1000, a);
  MemoryBlock* y = pool.allocate(3 * MiB, a);
  PoolStatistics now = pool.statistics();
  EXPECT_EQ(now.live_bytes, 1024 + 3 * MiB);
  EXPECT_EQ(now.reserved_bytes, 2 * MiB + 4 * MiB);
  EXPECT_EQ(now.allocations, 2u);
  EXPECT_EQ(now.upstream_allocations, 2u);
  pool.deallocate(y);
  pool.deallocate(x);
  pool.release_cached();
  now = pool.statistics();
  EXPECT_EQ(now.live_bytes, 0u);
  EXPECT_EQ(now.peak_live_bytes, 1024 + 3 * MiB);
  EXPECT_EQ(now.reserved_bytes, 0u);
  EXPECT_EQ(now.peak_reserved_bytes, 6 * MiB);
  EXPECT_EQ(now.upstream_frees, 2u);
  EXPECT_EQ(now.out_of_memory_retries, 0u);
}

TEST_F(CachingPoolTest, StaysUsableWhenTheUpstreamThrows) {
  MemoryBlock* kept = pool.allocate(100 * KiB, a);
  log.throws = true;
  EXPECT_THROW(pool.allocate(4 * MiB, a), std::runtime_error);
  EXPECT_THROW(pool.allocate(4 * KiB, b), std::runtime_error);
  log.throws = false;
  EXPECT_EQ(pool.statistics().live_bytes, 100 * KiB);
  EXPECT_EQ(pool.statistics().reserved_bytes, 2 * MiB);
  pool.deallocate(pool.allocate(4 * MiB, a));
  pool.deallocate(kept);
  pool.release_cached();
  EXPECT_EQ(log.held_bytes, 0u);
}

TEST_F(CachingPoolTest, WaitsOnTheHostWhereNoEventIsToBeHad) {
  for (const int failing : {0, 1, 2, 3}) {  // create and record, on either stream
    MemoryBlock* block = pool.allocate(MiB, a);
    pool.record_stream(block, b);
    pool.record_stream(block, c);
    FakeRuntime::queue_work(b);
    runtime.host_waits = 0;
    runtime.fail_after(failing);
    pool.deallocate(block);
    EXPECT_EQ(runtime.host_waits, 2) << failing;
    EXPECT_TRUE(runtime.events.empty()) << failing;
  }
  pool.release_cached();
  EXPECT_EQ(log.held_bytes, 0u);
}

TEST_F(CachingPoolTest, LosesNoWaitingBlockWhenAQueryThrows) {
  std::vector<MemoryBlock*> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(pool.allocate(100 * KiB, a));
    pool.record_stream(blocks.back(), b);
  }
  FakeRuntime::queue_work(b);
  for (MemoryBlock* block : blocks) pool.deallocate(block);
  FakeRuntime::finish(b);
  runtime.fail_after(1);
  EXPECT_THROW(pool.allocate(512, a), std::runtime_error);
  pool.deallocate(pool.allocate(512, a));
  EXPECT_TRUE(runtime.events.empty());
  pool.release_cached();
  EXPECT_EQ(log.held_bytes, 0u);
}

TEST_F(CachingPoolTest, DestroysTheEventsOfBlocksThatStillWait) {
  {
    Pool short_lived{{&log}, runtime, cpu};
    MemoryBlock* block = short_lived.allocate(512, a);
    short_lived.record_stream(block, b);
    FakeRuntime::queue_work(b);
    short_lived.deallocate(block);
    EXPECT_FALSE(runtime.events.empty());
  }
  EXPECT_TRUE(runtime.events.empty());
  EXPECT_EQ(log.held_bytes, 0u);
}

}  // namespace
}  // namespace lockstep
