#include "lockstep/memory/out_of_memory.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/memory/memory_tag.hpp"
#include "memory/caching_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "memory/fault_injecting_upstream.hpp"
#include "support/fake_runtime.hpp"

// What a pool does when its upstream refuses.

namespace lockstep {
namespace {

using testing::FakeRuntime;
using testing::FakeUpstream;
using ::testing::HasSubstr;
using testing::KiB;
using testing::MiB;
using testing::UpstreamLog;

class PoolShortage : public ::testing::Test {
 protected:
  using Upstream = FaultInjectingUpstream<FakeUpstream>;

  /// What a request fails with; nothing if it does not.
  std::optional<MemoryShortage> shortage(std::size_t bytes, StreamRef stream) {
    try {
      pool.deallocate(pool.allocate(bytes, stream));
    } catch (const PoolOutOfMemory& error) {
      message = error.what();
      return error.shortage();
    }
    return std::nullopt;
  }

  FakeRuntime runtime;
  UpstreamLog log;
  bool refuses_all = false;
  int refusals = 0;
  std::string message;
  StreamRef a = runtime.create_stream(cpu, StreamPriority::normal);
  StreamRef b = runtime.create_stream(cpu, StreamPriority::normal);
  CachingPool<Upstream> pool{
      {{&log}, [this](std::size_t) { return refuses_all || refusals-- > 0; }}, runtime, cpu};
};

TEST_F(PoolShortage, ReturnsWhatIsFreeBeforeItWaitsForAnyStream) {
  log.capacity = 8 * MiB;
  MemoryBlock* in_use = pool.allocate(4 * MiB, a);
  pool.record_stream(in_use, b);
  FakeRuntime::queue_work(b);
  pool.deallocate(in_use);
  pool.deallocate(pool.allocate(4 * MiB, b));
  pool.deallocate(pool.allocate(3 * MiB, a));
  EXPECT_EQ(runtime.host_waits, 0);
  EXPECT_EQ(pool.statistics().out_of_memory_retries, 1u);
}

TEST_F(PoolShortage, WaitsForStreamsWhereThatIsNotEnough) {
  log.capacity = 4 * MiB;
  MemoryBlock* in_use = pool.allocate(4 * MiB, a);
  pool.record_stream(in_use, b);
  FakeRuntime::queue_work(b);
  pool.deallocate(in_use);
  EXPECT_FALSE(shortage(3 * MiB, b));
  EXPECT_EQ(runtime.host_waits, 1);
}

TEST_F(PoolShortage, IsOverAfterOneRefusal) {
  refusals = 1;
  EXPECT_FALSE(shortage(3 * MiB, a));
  EXPECT_EQ(pool.statistics().out_of_memory_retries, 1u);
}

TEST_F(PoolShortage, TellsWantedFreeReservedAndTheLargestFreeBlock) {
  log.capacity = 8 * MiB;
  MemoryBlock* out[] = {pool.allocate(3 * MiB, a), pool.allocate(100 * KiB, b),
                        pool.allocate(300 * KiB, b)};
  pool.deallocate(out[1]);
  const auto told = shortage(8 * MiB, a);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->wanted_bytes, 8 * MiB);
  EXPECT_EQ(told->live_bytes, 3 * MiB + 300 * KiB);
  EXPECT_EQ(told->reserved_bytes, 6 * MiB);
  EXPECT_EQ(told->free_bytes, 3 * MiB - 300 * KiB);
  EXPECT_EQ(told->largest_free_block_bytes, 2 * MiB - 400 * KiB);
  EXPECT_NEAR(told->fragmentation(), 1 - 1648.0 / 2772.0, 1e-9);
  EXPECT_THAT(message, HasSubstr("asked for 8388608 bytes"));
  EXPECT_THAT(message, HasSubstr("41 % fragmentation"));
  pool.deallocate(out[0]);
  pool.deallocate(out[2]);
}

TEST_F(PoolShortage, TellsOwnersBySizeWhereNobodyRecords) {
  MemoryBlock* out[] = {pool.allocate(3 * MiB, a), pool.allocate(MiB, a), pool.allocate(MiB, b)};
  refuses_all = true;
  const auto told = shortage(8 * MiB, a);
  ASSERT_TRUE(told);
  ASSERT_EQ(told->owners.size(), 2u);
  EXPECT_EQ(told->owners[0].bytes, 3 * MiB);
  EXPECT_EQ(told->owners[1].tag, "blocks of 1048576 bytes");
  EXPECT_EQ(told->owners[1].blocks, 2u);
  for (MemoryBlock* block : out) pool.deallocate(block);
}

TEST_F(PoolShortage, TellsTheTenLargestOwnersByTag) {
  pool.record_history(100);
  const std::vector<std::string> names{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};
  std::vector<MemoryBlock*> out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const MemoryTag tag(names[i]);
    out.push_back(pool.allocate((i + 1) * 10 * KiB, a));
    out.push_back(pool.allocate((i + 1) * 10 * KiB, a));
  }
  refuses_all = true;
  const auto told = shortage(8 * MiB, a);
  ASSERT_TRUE(told);
  ASSERT_EQ(told->owners.size(), 10u);
  EXPECT_EQ(told->owners.front().tag, "l");
  EXPECT_EQ(told->owners.front().bytes, 240 * KiB);
  EXPECT_EQ(told->owners.front().blocks, 2u);
  EXPECT_EQ(told->owners.back().tag, "c");
  EXPECT_THAT(message, HasSubstr("held by l: 245760 bytes in 2 blocks, k: "));
  for (MemoryBlock* block : out) pool.deallocate(block);
}

TEST_F(PoolShortage, LeavesThePoolWhole) {
  MemoryBlock* out = pool.allocate(MiB, a);
  refuses_all = true;
  EXPECT_TRUE(shortage(8 * MiB, a));
  EXPECT_FALSE(shortage(MiB, a));
  refuses_all = false;
  EXPECT_FALSE(shortage(8 * MiB, a));
  pool.deallocate(out);
  pool.release_cached();
  EXPECT_EQ(log.held_bytes, 0u);
}

// Every fifth request of the pool is refused, whichever that is.
TEST(PoolFaults, LoseNoMemoryAndCorruptNothing) {
  FakeRuntime runtime;
  UpstreamLog log;
  std::minstd_rand random(3);
  const StreamRef streams[] = {runtime.create_stream(cpu, StreamPriority::normal),
                               runtime.create_stream(cpu, StreamPriority::normal)};
  {
    CachingPool<FaultInjectingUpstream<FakeUpstream>> pool(
        {{&log}, [&](std::size_t) { return random() % 5 == 0; }}, runtime, cpu,
        {.limit = 64 * MiB});
    std::vector<MemoryBlock*> held;
    std::size_t live = 0;
    int failures = 0;
    const auto free_one = [&](std::size_t index) {
      live -= held[index]->size;
      if (random() % 4 == 0) pool.record_stream(held[index], streams[random() % 2]);
      pool.deallocate(held[index]);
      held[index] = held.back();
      held.pop_back();
    };
    for (int i = 0; i < 50'000; ++i) {
      const StreamRef stream = streams[random() % 2];
      if (random() % 3 == 0) FakeRuntime::queue_work(stream);
      if (random() % 3 == 0) FakeRuntime::finish(stream);
      if (!held.empty() && random() % 2 == 0) {
        free_one(random() % held.size());
        continue;
      }
      try {
        held.push_back(pool.allocate(1 + random() % (KiB << random() % 14), stream));
        live += held.back()->size;
      } catch (const PoolOutOfMemory&) {
        ++failures;
      }
      ASSERT_EQ(pool.statistics().live_bytes, live);
      ASSERT_EQ(pool.statistics().reserved_bytes, log.held_bytes);
      ASSERT_LE(log.held_bytes, 64 * MiB);
    }
    EXPECT_GT(failures, 0);
    while (!held.empty()) free_one(0);
    pool.release_cached();
    EXPECT_EQ(log.held_bytes, 0u);
  }
  EXPECT_TRUE(runtime.events.empty());
}

}  // namespace
}  // namespace lockstep
