#include "memory/paged_upstream.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/memory/out_of_memory.hpp"
#include "memory/caching_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "memory/pool_churn.hpp"
#include "support/fake_runtime.hpp"

// Segments that grow and shrink by pages.

namespace lockstep {
namespace {

using testing::MiB;

constexpr std::size_t page = HostVirtualMemory::page;

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
  testing::FakeRuntime runtime;
  StreamRef stream = runtime.create_stream(cpu, StreamPriority::normal);
  testing::ChurnOptions churn{
      .capacity = capacity,
      .page = page,
      .operations = 20'000,
      .streams = {stream, runtime.create_stream(cpu, StreamPriority::normal)}};
};

TEST_F(GrowablePool, ServesARequestWheneverItsPagesAreFreeSomewhere) {
  std::size_t mapped = 0;
  CachingPool<PagedUpstream<ScarceMemory>> pool({{{}, &mapped, capacity}, 2 * capacity}, runtime,
                                                cpu);
  churn.write = [](const MemoryBlock& block, StreamRef, unsigned char mark) {
    std::memset(block.data, mark, 64);
  };
  churn.is_intact = [](const MemoryBlock& block, StreamRef, unsigned char mark) {
    const auto* const data = static_cast<const unsigned char*>(block.data);
    return std::all_of(data, data + 64, [&](unsigned char byte) { return byte == mark; });
  };
  testing::PoolChurn blocks(pool, churn);
  EXPECT_EQ(blocks.run(), 0);
  EXPECT_GT(blocks.failures(), 0);
  EXPECT_EQ(mapped, 0u);
}

// Else the test above would say little.
TEST_F(GrowablePool, DoesWhatSegmentsThatDoNotGrowCannot) {
  testing::UpstreamLog log;
  log.capacity = capacity;
  CachingPool<testing::FakeUpstream> pool({&log}, runtime, cpu);
  testing::PoolChurn blocks(pool, churn);
  blocks.run();
  EXPECT_GT(blocks.failures_beside_free_memory(), 0);
}

TEST_F(GrowablePool, AsksForTheMissingPagesOnly) {
  std::size_t mapped = 0;
  CachingPool<PagedUpstream<ScarceMemory>> pool({{{}, &mapped, capacity}, 2 * capacity}, runtime,
                                                cpu);
  pool.deallocate(pool.allocate(10 * MiB, stream));
  MemoryBlock* const block = pool.allocate(12 * MiB, stream);
  EXPECT_EQ(pool.statistics().reserved_bytes, 12 * MiB);
  EXPECT_EQ(mapped, 12 * MiB);
  pool.deallocate(block);
}

/// What a pool does to memory of which nobody knows how much there is.
struct CountedMemory : HostVirtualMemory {
  std::size_t* mapped;
  bool map(void*, std::size_t bytes) const noexcept {
    *mapped += bytes;
    return true;
  }
  void unmap(void*, std::size_t bytes) const noexcept { *mapped -= bytes; }
};

TEST_F(GrowablePool, MovesFreePagesRatherThanHoldMuchMoreThanWasEverLive) {
  std::size_t mapped = 0;
  CachingPool<PagedUpstream<CountedMemory>> pool({{{}, &mapped}, std::size_t{64} << 30}, runtime,
                                                 cpu);
  constexpr int count = 128;
  const auto step = [&] {
    std::vector<MemoryBlock*> thin, wide;
    for (int i = 0; i < 2 * count; ++i) thin.push_back(pool.allocate(8 * MiB, stream));
    for (int i = 0; i < 2 * count; i += 2) pool.deallocate(std::exchange(thin[i], nullptr));
    for (int i = 0; i < count / 2; ++i) wide.push_back(pool.allocate(16 * MiB, stream));
    for (MemoryBlock* block : thin) pool.deallocate(block);
    for (MemoryBlock* block : wide) pool.deallocate(block);
  };
  step();
  EXPECT_LE(pool.statistics().peak_reserved_bytes, pool.statistics().peak_live_bytes * 105 / 100);
  for (int i = 0; i < 8; ++i) step();
  const std::uint64_t asked = pool.statistics().upstream_allocations;
  for (int i = 0; i < 8; ++i) step();
  EXPECT_EQ(pool.statistics().upstream_allocations, asked);  // nothing is moved for ever
  EXPECT_EQ(mapped, pool.statistics().reserved_bytes);
  pool.release_cached();
  EXPECT_EQ(mapped, 0u);
}

TEST_F(GrowablePool, GivesNothingBackUnaskedWhereItIsToKeepIt) {
  std::size_t mapped = 0;
  CachingPool<PagedUpstream<ScarceMemory>> pool({{{}, &mapped, capacity}, 2 * capacity}, runtime,
                                                cpu, {.keeps = true});
  pool.deallocate(pool.allocate(20 * page, stream));
  MemoryBlock* const block = pool.allocate(8 * page, stream);
  EXPECT_THROW(pool.allocate(17 * page, stream), PoolOutOfMemory);
  EXPECT_EQ(mapped, 20 * page);
  pool.deallocate(block);
  pool.trim(0);
  EXPECT_EQ(mapped, 0u);
}

}  // namespace
}  // namespace lockstep
