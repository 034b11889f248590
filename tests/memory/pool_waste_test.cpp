#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "memory/caching_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "support/fake_runtime.hpp"

// What a pool promises of the memory that it holds and nobody uses.

namespace lockstep {
namespace {

using testing::KiB;
using testing::MiB;

std::size_t random_size(std::minstd_rand& random) {
  return 1 + random() % (std::size_t{256} << random() % 18);
}

/// The longest run of neighbouring blocks that nobody has, in segments for requests of that size.
std::size_t longest_free_run(const MemorySnapshot& snapshot, bool small) {
  std::size_t longest = 0;
  for (const MemorySegmentInfo& segment : snapshot.segments) {
    if (segment.small != small) continue;
    std::size_t run = 0;
    for (const MemoryBlockInfo& block : segment.blocks) {
      run = block.state == "inactive" ? run + block.bytes : 0;
      longest = std::max(longest, run);
    }
  }
  return longest;
}

class PoolWaste : public ::testing::Test {
 protected:
  testing::FakeRuntime runtime;
  testing::UpstreamLog log;
  StreamRef stream = runtime.create_stream(cpu, StreamPriority::normal);
  CachingPool<testing::FakeUpstream> pool{{&log}, runtime, cpu};
  std::minstd_rand random{11};
};

TEST_F(PoolWaste, IsLessThanAGranuleABlockAndLittleMoreInLargeOnes) {
  std::vector<MemoryBlock*> held;
  for (int i = 0; i < 20'000; ++i) {
    if (held.size() > 100 || (!held.empty() && random() % 2 == 0)) {
      std::swap(held[random() % held.size()], held.back());
      pool.deallocate(held.back());
      held.pop_back();
      continue;
    }
    const std::size_t asked = random_size(random);
    held.push_back(pool.allocate(asked, stream));
    const std::size_t most = asked <= MiB ? 512 : 512 + 16 * KiB;
    ASSERT_LT(held.back()->size - asked, most) << asked;
  }
  for (MemoryBlock* block : held) pool.deallocate(block);
}

TEST_F(PoolWaste, ThePoolGrowsOnlyWhereNothingItHasWouldDo) {
  std::vector<MemoryBlock*> held;
  int grown = 0;
  for (int i = 0; i < 5'000; ++i) {
    if (held.size() > 60 || (!held.empty() && random() % 2 == 0)) {
      std::swap(held[random() % held.size()], held.back());
      pool.deallocate(held.back());
      held.pop_back();
      continue;
    }
    const std::size_t asked = random_size(random);
    const MemorySnapshot before = pool.snapshot();
    held.push_back(pool.allocate(asked, stream));
    if (pool.statistics().upstream_allocations == before.statistics.upstream_allocations) continue;
    ++grown;
    const std::size_t size = (asked + 511) / 512 * 512;
    ASSERT_LT(longest_free_run(before, size <= MiB), size) << asked;
  }
  EXPECT_GT(grown, 10);
  for (MemoryBlock* block : held) pool.deallocate(block);
}

}  // namespace
}  // namespace lockstep
