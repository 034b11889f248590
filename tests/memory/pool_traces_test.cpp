#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "memory/allocation_trace.hpp"
#include "memory/caching_pool.hpp"
#include "memory/unbacked_upstream.hpp"
#include "support/fake_runtime.hpp"
#include "support/golden.hpp"

// What steps of GPT-2 (124 million parameters) and ResNet-50 allocate, replayed.

namespace lockstep {
namespace {

using testing::AllocationTrace;
using testing::FakeRuntime;
using testing::peak_requested;
using testing::TraceReplay;

class PoolTraces : public ::testing::TestWithParam<const char*> {
 protected:
  /// Peak reserved over peak requested bytes.
  double overhead(MemoryPool& pool) {
    TraceReplay(pool, stream).run(trace);
    const std::size_t asked = peak_requested(trace);
    EXPECT_GT(asked, std::size_t{100} << 20);
    const double ratio =
        static_cast<double>(pool.statistics().peak_reserved_bytes) / static_cast<double>(asked);
    RecordProperty("reserved_over_asked", std::to_string(ratio));
    return ratio;
  }

  AllocationTrace trace =
      testing::read_trace(testing::reference_dir().parent_path() / "pool" / GetParam());
  FakeRuntime runtime;
  StreamRef stream = runtime.create_stream(cpu, StreamPriority::normal);
  const PoolOptions of_host{.granularity = 64}, of_gpu{};
};

TEST_P(PoolTraces, TakeLittleMoreThanTheyNeedOfSegmentsThatGrow) {
  for (const PoolOptions& options : {of_host, of_gpu}) {
    CachingPool<PagedUpstream<UnbackedPages>> pool({{}, std::size_t{16} << 30}, runtime, cpu,
                                                   options);
    EXPECT_LE(overhead(pool), 1.05);
  }
}

TEST_P(PoolTraces, TakeSomeMoreOfSegmentsOfTheirOwnSize) {
  for (const PoolOptions& options : {of_host, of_gpu}) {
    CachingPool<UnbackedUpstream> pool({}, runtime, cpu, options);
    EXPECT_LE(overhead(pool), 1.13);
  }
}

TEST_P(PoolTraces, WantNothingOfTheUpstreamAfterSomeSteps) {
  CachingPool<PagedUpstream<UnbackedPages>> pool({{}, std::size_t{16} << 30}, runtime, cpu);
  TraceReplay steps(pool, stream);
  steps.run(trace);
  const AllocationTrace step = testing::last_step(trace);
  for (int i = 0; i < 8; ++i) steps.run(step, true);
  const std::uint64_t asked = pool.statistics().upstream_allocations;
  for (int i = 0; i < 8; ++i) steps.run(step, true);
  EXPECT_EQ(pool.statistics().upstream_allocations, asked);
  EXPECT_LE(static_cast<double>(pool.statistics().peak_reserved_bytes),
            1.05 * static_cast<double>(peak_requested(trace)));
}

INSTANTIATE_TEST_SUITE_P(Steps, PoolTraces, ::testing::Values("gpt2.trace.gz", "resnet50.trace.gz"),
                         [](const auto& test) {
                           const std::string file = test.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace lockstep
