#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/memory/memory_tag.hpp"
#include "lockstep/memory/out_of_memory.hpp"
#include "memory/caching_pool.hpp"
#include "memory/direct_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "support/fake_runtime.hpp"

// Limits, marks, peaks and snapshots.

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::FakeRuntime;
using testing::FakeUpstream;
using testing::KiB;
using testing::MiB;
using testing::UpstreamLog;

class PoolControl : public ::testing::Test {
 protected:
  FakeRuntime runtime;
  UpstreamLog log;
  StreamRef a = runtime.create_stream(cpu, StreamPriority::normal);
  StreamRef b = runtime.create_stream(cpu, StreamPriority::normal);
  CachingPool<FakeUpstream> pool{{&log}, runtime, cpu};
};

TEST_F(PoolControl, ALimitReturnsWhatIsCachedAndRefusesMore) {
  MemoryBlock* kept = pool.allocate(3 * MiB, a);
  pool.deallocate(pool.allocate(3 * MiB, b));
  EXPECT_EQ(pool.statistics().reserved_bytes, 8 * MiB);
  pool.set_limit(4 * MiB);
  EXPECT_EQ(pool.statistics().reserved_bytes, 4 * MiB);
  EXPECT_THROW(pool.allocate(MiB, b), PoolOutOfMemory);
  pool.set_limit(6 * MiB);
  pool.deallocate(pool.allocate(MiB, b));
  pool.deallocate(kept);
}

TEST_F(PoolControl, ALimitBelowWhatIsOutRefusesUntilItFits) {
  MemoryBlock* out = pool.allocate(8 * MiB, a);
  pool.set_limit(2 * MiB);
  EXPECT_THROW(pool.allocate(MiB, a), PoolOutOfMemory);
  pool.deallocate(out);
  pool.deallocate(pool.allocate(MiB, a));
  EXPECT_EQ(pool.statistics().reserved_bytes, 2 * MiB);
}

TEST_F(PoolControl, ATrimKeepsWhatItIsToldTo) {
  std::vector<MemoryBlock*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.allocate(4 * MiB, a));
  for (MemoryBlock* block : blocks) pool.deallocate(block);
  pool.trim(9 * MiB);
  EXPECT_EQ(pool.statistics().reserved_bytes, 8 * MiB);
  pool.trim(0);
  EXPECT_EQ(log.held_bytes, 0u);
  EXPECT_EQ(runtime.host_waits, 0);
}

TEST_F(PoolControl, TheMarkIsToldEachTimeItIsPassed) {
  std::vector<std::size_t> told;
  pool.set_high_water(5 * MiB, [&](std::size_t reserved) {
    told.push_back(reserved);
    pool.deallocate(pool.allocate(64, a));  // it may use the pool
  });
  MemoryBlock* first = pool.allocate(4 * MiB, a);
  EXPECT_TRUE(told.empty());
  MemoryBlock* second = pool.allocate(2 * MiB, a);
  pool.deallocate(pool.allocate(2 * MiB, b));
  EXPECT_THAT(told, ElementsAre(6 * MiB));
  pool.deallocate(second);
  pool.deallocate(first);
  pool.trim(0);
  pool.deallocate(pool.allocate(6 * MiB, a));
  EXPECT_THAT(told, ElementsAre(6 * MiB, 6 * MiB));
  pool.set_high_water(0, {});
  pool.deallocate(pool.allocate(6 * MiB, b));
}

TEST_F(PoolControl, PeaksBeginAnew) {
  pool.deallocate(pool.allocate(8 * MiB, a));
  MemoryBlock* small[] = {pool.allocate(1 * KiB, a), pool.allocate(1 * KiB, a)};
  pool.deallocate(small[1]);
  pool.reset_peak();
  EXPECT_EQ(pool.statistics().peak_live_bytes, KiB);
  EXPECT_EQ(pool.statistics().peak_reserved_bytes, 10 * MiB);
  small[1] = pool.allocate(1 * KiB, a);  // a block that was kept by its size
  pool.deallocate(small[1]);
  pool.deallocate(small[0]);
  EXPECT_EQ(pool.statistics().peak_live_bytes, 2 * KiB);
}

TEST_F(PoolControl, CountsAllOfWhatThreadsKeepForThemselves) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 1000; ++turn) pool.deallocate(pool.allocate(KiB, {}));
    });
  for (std::thread& thread : threads) thread.join();
  const PoolStatistics now = pool.statistics();
  EXPECT_EQ(now.live_bytes, 0u);
  EXPECT_EQ(now.allocations, 8000u);
  EXPECT_GE(now.peak_live_bytes, KiB);
  EXPECT_EQ(now.upstream_allocations, 1u);
  pool.release_cached();
  EXPECT_EQ(log.held_bytes, 0u);
}

TEST_F(PoolControl, ASnapshotHasEachBlockOfEachSegment) {
  MemoryBlock* out = pool.allocate(700, a);
  MemoryBlock* waiting = pool.allocate(3 * MiB, b);
  pool.record_stream(waiting, a);
  FakeRuntime::queue_work(a);
  pool.deallocate(waiting);
  const MemorySnapshot snapshot = pool.snapshot();
  ASSERT_EQ(snapshot.segments.size(), 2u);
  const auto& blocks = snapshot.segments[0].blocks;
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].address, reinterpret_cast<std::uintptr_t>(out->data));
  EXPECT_EQ(blocks[0].state, "active_allocated");
  EXPECT_EQ(blocks[1].bytes, 2 * MiB - KiB);
  EXPECT_EQ(blocks[1].state, "inactive");
  EXPECT_EQ(snapshot.segments[1].blocks[0].state, "active_pending_free");
  ASSERT_EQ(snapshot.streams.size(), 2u);
  EXPECT_EQ(snapshot.streams[0].live_bytes, KiB);
  EXPECT_EQ(snapshot.streams[0].live_blocks, 1u);
  EXPECT_EQ(snapshot.streams[1].waiting_bytes, 3 * MiB);
  EXPECT_EQ(snapshot.streams[1].largest_free_block_bytes, MiB);
  pool.deallocate(out);
}

std::vector<MemoryAction> actions(const MemorySnapshot& snapshot) {
  std::vector<MemoryAction> all;
  for (const MemoryEvent& event : snapshot.events) all.push_back(event.action);
  return all;
}

TEST_F(PoolControl, AHistoryHasEachEventWithItsTag) {
  pool.record_history(100);
  {
    const MemoryTag tag("augmentation");
    MemoryBlock* block = pool.allocate(3 * MiB, a);
    pool.record_stream(block, b);
    FakeRuntime::queue_work(b);
    pool.deallocate(block);
  }
  FakeRuntime::finish(b);
  pool.release_cached();
  const MemorySnapshot snapshot = pool.snapshot();
  using enum MemoryAction;
  EXPECT_THAT(actions(snapshot),
              ElementsAre(segment_alloc, alloc, free_requested, free_completed, segment_free));
  for (const std::size_t i : {1, 2, 3})
    EXPECT_EQ(snapshot.tags[snapshot.events[i].tag], "augmentation") << i;
  EXPECT_EQ(snapshot.by_tag[0].tag, "augmentation");
  EXPECT_EQ(snapshot.by_tag[0].live_bytes, 0u);
  EXPECT_EQ(snapshot.by_tag[0].peak_live_bytes, 3 * MiB);
}

TEST_F(PoolControl, AHistoryKeepsTheLastEvents) {
  pool.record_history(4);
  for (const std::size_t size : {100, 200, 300, 2000}) pool.deallocate(pool.allocate(size, a));
  const MemorySnapshot snapshot = pool.snapshot();
  ASSERT_EQ(snapshot.events.size(), 4u);
  EXPECT_EQ(snapshot.lost_events, 5u);
  EXPECT_EQ(snapshot.events[0].bytes, 512u);
  EXPECT_EQ(snapshot.events[3].bytes, 2048u);
  EXPECT_EQ(snapshot.events[3].action, MemoryAction::free_completed);
  pool.record_history(std::nullopt);
  EXPECT_TRUE(pool.snapshot().events.empty());
}

TEST_F(PoolControl, ASnapshotIsWrittenInTheNamesOfPyTorch) {
  pool.record_history(100);
  const MemoryTag tag("weights");
  MemoryBlock* out = pool.allocate(700, a);
  const std::string json = to_json({pool.snapshot()});
  for (const char* part :
       {R"("segments":[{"device":0,"address":)", R"("total_size":2097152,"allocated_size":1024)",
        R"("requested_size":700,"state":"active_allocated","frames":[{"name":"weights")",
        R"("device_traces":[[{"action":"segment_alloc")", R"("action":"alloc")",
        R"("peak_live_bytes":1024)"})
    EXPECT_THAT(json, ::testing::HasSubstr(part));
  pool.deallocate(out);
}

TEST(DirectPoolControl, LimitsCountsAndRecords) {
  UnpooledAllocator<HostUpstream> pool({}, cpu);
  pool.record_history(10);
  std::vector<std::size_t> told;
  pool.set_high_water(5000, [&](std::size_t live) { told.push_back(live); });
  pool.set_limit(10'000);
  MemoryBlock* first = pool.allocate(6000, {});
  EXPECT_THROW(pool.allocate(6000, {}), PoolOutOfMemory);
  EXPECT_EQ(pool.statistics().live_bytes, 6000u);
  pool.deallocate(first);
  EXPECT_THAT(told, ElementsAre(6000));
  EXPECT_EQ(pool.statistics().peak_live_bytes, 6000u);
  pool.reset_peak();
  EXPECT_EQ(pool.statistics().peak_live_bytes, 0u);
  using enum MemoryAction;
  EXPECT_THAT(actions(pool.snapshot()), ElementsAre(alloc, oom, free_completed));
}

}  // namespace
}  // namespace lockstep
