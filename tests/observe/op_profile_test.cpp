#include "lockstep/observe/op_profile.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

void wait_within(std::string_view outer, std::string_view inner) {
  const TraceRange around(outer);
  std::this_thread::sleep_for(4ms);
  const TraceRange within(inner, TracePhase::backward);
  std::this_thread::sleep_for(12ms);
}

TEST(OpProfile, TellsOwnTimeFromThatOfOpsWithin) {
  const OpProfile profile;
  wait_within("outer", "inner");
  std::thread(wait_within, "outer", "inner").join();
  const std::vector<OpTime> times = profile.times();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].op, "inner");
  EXPECT_EQ(times[0].phase, TracePhase::backward);
  EXPECT_EQ(times[0].calls, 2);
  EXPECT_EQ(times[0].own, times[0].total);
  EXPECT_GE(times[0].own, 24ms);
  EXPECT_EQ(times[1].op, "outer");
  EXPECT_EQ(times[1].total, times[1].own + times[0].total);
  EXPECT_GE(times[1].own, 8ms);
}

TEST(OpProfile, ListsOpsAndTheirBackward) {
  OpProfile profile;
  const Tensor x = rand({3, 4}).set_requires_grad();
  for (int i = 0; i < 3; ++i) sum(linear(x, rand({2, 4}))).backward();
  EXPECT_THAT(profile.table(), HasSubstr("linear"));
  const auto times = profile.times();
  const auto calls = [&](std::string_view op, TracePhase phase) -> std::int64_t {
    for (const OpTime& each : times)
      if (each.op == op && each.phase == phase) return each.calls;
    return 0;
  };
  EXPECT_EQ(calls("linear", TracePhase::forward), 3);
  EXPECT_EQ(calls("linear", TracePhase::backward), 3);
  EXPECT_THAT(profile.table(1), HasSubstr("more\n"));
  profile.reset();
  EXPECT_TRUE(profile.times().empty());
}

/// Its ranges come after the destructors of what the thread has made since.
struct RangesAtTheEnd {
  ~RangesAtTheEnd() {
    for (int i = 0; i < 100; ++i) const TraceRange late("late");
  }
};

TEST(OpProfile, LeavesOutWhatAThreadDoesAfterItsVariables) {
  const OpProfile profile;
  std::thread([] {
    static thread_local const RangesAtTheEnd first;
    (void)first;
    const TraceRange range("early");
  }).join();
  ASSERT_EQ(profile.times().size(), 1U);
  EXPECT_EQ(profile.times()[0].op, "early");
}

TEST(OpProfile, CountsOnlyWhileItLives) {
  const OpProfile outer;
  std::size_t inner = 0;
  {
    const TraceRange before("before");
    const OpProfile profile;
    { const TraceRange range("both"); }
    inner = profile.times().size();
  }
  { const TraceRange range("later"); }
  EXPECT_EQ(inner, 1u);
  EXPECT_EQ(outer.times().size(), 3u);
}

/// Counts ranges.
struct Count final : TraceSink {
  void begin(std::string_view, TracePhase) noexcept override { ++begun; }
  void end() noexcept override { ++ended; }
  int begun = 0, ended = 0;
};

TEST(OpProfile, KnowsNothingOfTheOneBefore) {
  auto first = std::make_unique<OpProfile>();
  auto range = std::make_unique<TraceRange>("of the first");
  first.reset();
  const OpProfile second;
  range.reset();
  EXPECT_TRUE(second.times().empty());
  { const TraceRange of_the_second("x"); }
  EXPECT_EQ(second.times().size(), 1u);
}

TEST(TraceRange, GoesAsOftenAsASinkWasAdded) {
  Count sink;
  add_trace_sink(sink);
  add_trace_sink(sink);
  { const TraceRange range("twice"); }
  remove_trace_sink(sink);
  { const TraceRange range("once"); }
  remove_trace_sink(sink);
  { const TraceRange range("never"); }
  EXPECT_EQ(sink.begun, 3);
  EXPECT_EQ(sink.ended, 3);
}

TEST(TraceRange, GoesToAllWhoListenedAsItBegan) {
  Count first, second;
  add_trace_sink(first);
  {
    const TraceRange range("alone");
    add_trace_sink(second);
    const TraceRange inner("both");
    remove_trace_sink(first);
  }
  { const TraceRange range("second"); }
  remove_trace_sink(first);  // does not listen
  remove_trace_sink(second);
  { const TraceRange range("nobody"); }
  EXPECT_EQ(first.begun, 2);
  EXPECT_EQ(first.ended, 2);
  EXPECT_EQ(second.begun, 2);
  EXPECT_EQ(second.ended, 2);
}

}  // namespace
}  // namespace lockstep
