#include "lockstep/memory/memory_planner.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "memory/allocation_trace.hpp"
#include "memory/caching_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "memory/lifetime_plan.hpp"
#include "memory/planned_memory.hpp"
#include "memory/unbacked_upstream.hpp"
#include "support/fake_runtime.hpp"
#include "support/golden.hpp"

// Places that are worked out before a step, and steps that do otherwise.

namespace lockstep {
namespace {

using detail::Lifetime;
using testing::AllocationTrace;
using testing::FakeRuntime;
using testing::FakeUpstream;
using testing::KiB;
using testing::MiB;
using testing::TraceReplay;
using testing::UpstreamLog;

TEST(LifetimePlan, LaysBlocksThatLiveAtATimeApart) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> blocks(1 + random() % 60);
    for (Lifetime& block : blocks) {
      const std::size_t begin = random() % 100;
      block = {64 * (1 + random() % 50), begin, begin + 1 + random() % 40};
    }
    std::vector<std::size_t> pieces(random() % 5), borders;
    for (std::size_t& piece : pieces) piece = 64 * (1 + random() % 100);
    std::size_t given = 0;
    for (const std::size_t piece : pieces) borders.push_back(given += piece);
    const detail::OffsetPlan plan = detail::plan_offsets(blocks, pieces);
    ASSERT_EQ(plan.offsets.size(), blocks.size());
    const std::size_t least = detail::most_live_bytes(blocks);
    EXPECT_GE(plan.bytes, least);
    EXPECT_GE(plan.bytes, given);
    EXPECT_LE(plan.bytes, given + 2 * least);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0u);
      EXPECT_LE(plan.offsets[i] + blocks[i].bytes, plan.bytes);
      for (const std::size_t border : borders)
        EXPECT_FALSE(plan.offsets[i] < border && border < plan.offsets[i] + blocks[i].bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together = blocks[i].begin < blocks[j].end && blocks[j].begin < blocks[i].end;
        const bool overlap = plan.offsets[i] < plan.offsets[j] + blocks[j].bytes &&
                             plan.offsets[j] < plan.offsets[i] + blocks[i].bytes;
        EXPECT_FALSE(together && overlap);
      }
    }
  }
}

TEST(LifetimePlan, GivesPlacesAgain) {
  const std::vector<Lifetime> blocks{{640, 0, 2}, {640, 2, 4}, {320, 1, 3}};
  EXPECT_EQ(detail::plan_offsets(blocks).bytes, 960u);
  EXPECT_EQ(detail::most_live_bytes(blocks), 960u);
  EXPECT_EQ(detail::plan_offsets({}).bytes, 0u);
}

class PlannedMemoryTest : public ::testing::Test {
 protected:
  /// Allocates three blocks, of which never more than two live.
  void step(std::size_t scale = 1) {
    memory.begin_step(stream);
    MemoryBlock* const a = memory.allocate(scale * MiB, stream);
    MemoryBlock* const b = memory.allocate(2 * scale * MiB, stream);
    memory.deallocate(a);
    MemoryBlock* const c = memory.allocate(scale * MiB, stream);
    data = {a->data, b->data, c->data};
    memory.deallocate(b);
    memory.deallocate(c);
    memory.end_step();
  }

  UpstreamLog log;
  FakeRuntime runtime;
  StreamRef stream = runtime.create_stream(cpu, StreamPriority::normal);
  StreamRef other = runtime.create_stream(cpu, StreamPriority::normal);
  CachingPool<FakeUpstream> pool{{&log}, runtime, cpu, {.granularity = 64}};
  PlannedMemory memory{pool, runtime, cpu};
  std::vector<void*> data;
};

TEST_F(PlannedMemoryTest, ServesStepsThatAreAlikeFromOneBlock) {
  for (int i = 0; i < 5; ++i) step();
  const MemoryPlannerStatistics counts = memory.planner_statistics();
  EXPECT_EQ(counts.other_steps, 1u);
  EXPECT_EQ(counts.recorded_steps, 1u);
  EXPECT_EQ(counts.planned_steps, 3u);
  EXPECT_EQ(counts.planned_bytes, 3 * MiB);
  EXPECT_EQ(counts.most_live_bytes, 3 * MiB);
  EXPECT_EQ(pool.statistics().live_bytes, 3 * MiB);
  const auto before = data;
  const std::uint64_t allocations = pool.statistics().allocations;
  step();
  EXPECT_EQ(data, before);
  EXPECT_EQ(data[0], data[2]);
  EXPECT_EQ(pool.statistics().allocations, allocations);
  memory.give_back();
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
}

TEST_F(PlannedMemoryTest, LeavesWhatDiffersToThePool) {
  for (int i = 0; i < 3; ++i) step();
  step(3);
  EXPECT_EQ(memory.planner_statistics().other_steps, 2u);
  EXPECT_EQ(pool.statistics().live_bytes, 3 * MiB);
  step();
  EXPECT_EQ(memory.planner_statistics().planned_steps, 2u);
}

TEST_F(PlannedMemoryTest, RecordsAnewAfterTwoStepsThatDiffer) {
  for (int i = 0; i < 3; ++i) step();
  for (int i = 0; i < 4; ++i) step(2);
  const MemoryPlannerStatistics counts = memory.planner_statistics();
  EXPECT_EQ(counts.recorded_steps, 2u);
  EXPECT_EQ(counts.planned_steps, 2u);
  EXPECT_EQ(counts.planned_bytes, 6 * MiB);
  EXPECT_EQ(pool.statistics().live_bytes, 6 * MiB);
}

TEST_F(PlannedMemoryTest, RecordsStepsThatKeepDifferingMoreAndMoreSeldom) {
  for (std::size_t i = 0; i < 200; ++i) step(1 + i % 7);
  const MemoryPlannerStatistics counts = memory.planner_statistics();
  EXPECT_EQ(counts.planned_steps, 0u);
  EXPECT_LE(counts.recorded_steps, 8u);
  EXPECT_EQ(counts.other_steps + counts.recorded_steps, 200u);
}

TEST_F(PlannedMemoryTest, GivesNothingOutTwiceWhereABlockIsKeptForLonger) {
  for (int i = 0; i < 3; ++i) step();
  memory.begin_step(stream);
  MemoryBlock* const a = memory.allocate(MiB, stream);
  MemoryBlock* const b = memory.allocate(2 * MiB, stream);
  MemoryBlock* const c = memory.allocate(MiB, stream);  // the plan has it in the place of `a`
  EXPECT_NE(a->data, c->data);
  memory.deallocate(b);
  memory.deallocate(c);
  memory.end_step();
  EXPECT_EQ(memory.planner_statistics().other_steps, 2u);
  step();  // `a` is still out
  EXPECT_NE(data[0], a->data);
  memory.deallocate(a);
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(data[0], data[2]);
}

TEST_F(PlannedMemoryTest, PlansNothingForWhatOutlivesAStep) {
  std::vector<MemoryBlock*> kept;
  const auto keep = [&](std::size_t bytes) {
    memory.begin_step(stream);
    MemoryBlock* const before = kept.empty() ? nullptr : kept.back();
    kept.assign(1, memory.allocate(bytes, stream));
    memory.deallocate(before);
    MemoryBlock* const a = memory.allocate(MiB, stream);
    memory.deallocate(a);
    memory.end_step();
  };
  for (int i = 0; i < 5; ++i) keep(4 * MiB);
  EXPECT_EQ(memory.planner_statistics().planned_steps, 3u);
  EXPECT_EQ(memory.planner_statistics().planned_bytes, MiB);
  memory.deallocate(kept.back());
}

TEST_F(PlannedMemoryTest, WaitsForOtherStreams) {
  for (int i = 0; i < 3; ++i) step();
  memory.begin_step(stream);
  MemoryBlock* const a = memory.allocate(MiB, stream);
  FakeRuntime::queue_work(other);
  memory.record_stream(a, other);
  MemoryBlock* const b = memory.allocate(2 * MiB, stream);
  void* const used = a->data;
  memory.deallocate(a);
  MemoryBlock* const c = memory.allocate(MiB, stream);
  EXPECT_NE(c->data, used);
  memory.deallocate(b);
  memory.deallocate(c);
  memory.end_step();
  FakeRuntime::finish(other);
  step();
  EXPECT_EQ(data[0], used);
  EXPECT_EQ(memory.planner_statistics().planned_steps, 2u);
}

TEST_F(PlannedMemoryTest, DropsAPlanOfWhichBlocksWaitForOtherStreams) {
  for (const bool is_finished : {true, false}) {
    for (int i = 0; i < 4; ++i) step();
    memory.begin_step(stream);
    MemoryBlock* const a = memory.allocate(MiB, stream);
    FakeRuntime::queue_work(other);
    memory.record_stream(a, other);
    memory.deallocate(a);
    memory.end_step();
    if (is_finished) FakeRuntime::finish(other);
    step(2);
    step(2);  // recorded
    EXPECT_EQ(pool.statistics().live_bytes, is_finished ? 0 : 3 * MiB);
    memory.give_back();
    EXPECT_EQ(pool.statistics().live_bytes, 0u);
  }
}

TEST_F(PlannedMemoryTest, PlansNothingForBlocksThatOtherStreamsUsed) {
  for (int i = 0; i < 4; ++i) {
    memory.begin_step(stream);
    MemoryBlock* const a = memory.allocate(4 * MiB, stream);
    memory.record_stream(a, other);
    memory.deallocate(a);
    MemoryBlock* const b = memory.allocate(MiB, stream);
    memory.deallocate(b);
    memory.end_step();
  }
  EXPECT_EQ(memory.planner_statistics().planned_steps, 2u);
  EXPECT_EQ(memory.planner_statistics().planned_bytes, MiB);
}

TEST_F(PlannedMemoryTest, ReturnsThePlanOnceNobodyHasAnyOfIt) {
  for (int i = 0; i < 3; ++i) step();
  memory.begin_step(stream);
  MemoryBlock* const a = memory.allocate(MiB, stream);
  memory.end_step();
  memory.give_back();
  EXPECT_EQ(pool.statistics().live_bytes, 3 * MiB);
  FakeRuntime::queue_work(other);
  memory.record_stream(a, other);
  std::jthread([&] { memory.deallocate(a); }).join();
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
  pool.trim(0);
  EXPECT_EQ(log.held_bytes, 4 * MiB);  // in use on the other stream still
  FakeRuntime::finish(other);
  pool.trim(0);
  EXPECT_EQ(log.held_bytes, 0u);
}

TEST_F(PlannedMemoryTest, GoesOnWithoutAPlanWhereMemoryIsShort) {
  step();
  step();
  MemoryBlock* const rest = pool.allocate(2 * MiB, stream);
  pool.release_cached();
  pool.set_limit(6 * MiB);
  MemoryBlock* const more = pool.allocate(2 * MiB, other);
  pool.set_limit(4 * MiB);
  memory.begin_step(stream);  // no room for the plan
  memory.end_step();
  EXPECT_EQ(memory.planner_statistics().planned_bytes, 0u);
  pool.deallocate(rest);
  pool.deallocate(more);
  pool.set_limit(~std::size_t{0});
  for (int i = 0; i < 8; ++i) step();
  EXPECT_GE(memory.planner_statistics().planned_steps, 5u);
  memory.give_back();
}

TEST_F(PlannedMemoryTest, RecordsAnewWhereTheRecordedStepWasEmpty) {
  step();
  memory.begin_step(stream);
  memory.end_step();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_GE(memory.planner_statistics().planned_steps, 17u);
}

TEST_F(PlannedMemoryTest, RefusesAStepWithinAnother) {
  memory.begin_step(stream);
  EXPECT_THROW(memory.begin_step(stream), InvalidArgument);
  memory.end_step();
  step();
}

// Threads return blocks late and in any order, of steps that do as they like: no byte may be two
// blocks' at a time.
TEST_F(PlannedMemoryTest, NeverGivesAByteToTwo) {
  std::mt19937 random(7);
  std::map<std::uintptr_t, std::size_t> out;
  std::vector<std::pair<MemoryBlock*, std::size_t>> blocks;
  const auto give_back = [&](std::size_t i) {
    out.erase(reinterpret_cast<std::uintptr_t>(blocks[i].first->data));
    memory.deallocate(blocks[i].first);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
  };
  std::uint64_t planned = 0;
  for (int round = 0; round < 2000; ++round) {
    const bool odd = random() % 4 == 0;
    std::mt19937 plan(static_cast<unsigned>(round / 100));
    memory.begin_step(stream);
    for (int i = 0; i < 30; ++i) {
      const std::size_t bytes = 70000 + 1000 * (plan() % 200) + (odd && random() % 15 == 0);
      MemoryBlock* const block = memory.allocate(bytes, stream);
      const auto at = reinterpret_cast<std::uintptr_t>(block->data);
      const auto behind = out.lower_bound(at);
      ASSERT_TRUE(behind == out.end() || behind->first >= at + bytes);
      ASSERT_TRUE(behind == out.begin() ||
                  std::prev(behind)->first + std::prev(behind)->second <= at);
      out.emplace(at, bytes);
      blocks.emplace_back(block, bytes);
      while (blocks.size() > 8 || (!blocks.empty() && plan() % 3 == 0))
        give_back((odd ? random() : plan()) % blocks.size());
    }
    if (!odd)
      while (!blocks.empty()) give_back(0);
    memory.end_step();
    planned = std::max(planned, memory.planner_statistics().planned_steps);
  }
  EXPECT_GT(planned, 100u);
  while (!blocks.empty()) give_back(0);
  memory.give_back();
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
}

/// Steps of GPT-2 and ResNet-50, replayed with a plan.
class PlannedTraces : public ::testing::TestWithParam<const char*> {};

TEST_P(PlannedTraces, HoldHardlyMoreThanLives) {
  const AllocationTrace trace =
      testing::read_trace(testing::reference_dir().parent_path() / "pool" / GetParam());
  FakeRuntime runtime;
  const StreamRef stream = runtime.create_stream(cpu, StreamPriority::normal);
  CachingPool<UnbackedUpstream> pool({}, runtime, cpu, {.granularity = 64});
  PlannedMemory memory(pool, runtime, cpu);
  TraceReplay steps(memory, stream);
  steps.run(trace);
  const AllocationTrace step = testing::last_step(trace);
  for (int i = 0; i < 6; ++i) {
    if (i == 4) pool.reset_peak();
    memory.begin_step(stream);
    steps.run(step, true);
    memory.end_step();
  }
  const MemoryPlannerStatistics counts = memory.planner_statistics();
  EXPECT_EQ(counts.planned_steps, 4u);
  EXPECT_GE(counts.planned_bytes, counts.most_live_bytes);
  const double ratio = static_cast<double>(pool.statistics().peak_reserved_bytes) /
                       static_cast<double>(testing::peak_requested(trace));
  RecordProperty("reserved_over_asked", std::to_string(ratio));
  EXPECT_LE(ratio, 1.05);
}

INSTANTIATE_TEST_SUITE_P(Steps, PlannedTraces,
                         ::testing::Values("gpt2.trace.gz", "resnet50.trace.gz"),
                         [](const auto& test) {
                           const std::string file = test.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace lockstep
