#include "comm/ended_operations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

/// An operation that counts how often somebody asks for its times.
class TimedState final : public WorkState {
 public:
  void wait() override {}
  void synchronize() override {}
  bool is_completed() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  std::optional<WorkTimes> times() const override {
    ++asked;
    const auto now = WorkTimes::Clock::now();
    return WorkTimes{now, now, now};
  }
  std::optional<WorkTimes::Clock::duration> duration() const override {
    ++asked;
    return std::chrono::milliseconds(25);
  }
  std::string description() const { return "all_reduce #7"; }

  mutable int asked = 0;
};

// Whoever asks a device that hangs may hang himself.
TEST(EndedOperations, AreToldWithoutAskingForTheirTimesAgain) {
  const auto work = make_intrusive<TimedState>();
  EndedOperations<TimedState> ended;
  ended.add(work);
  work->asked = 0;
  EXPECT_THAT(ended.lines(), HasSubstr("before: all_reduce #7, took 25.0 ms, ended 0."));
  EXPECT_THAT(ended.share(), HasSubstr("in operations for 0.025 s of "));
  EXPECT_EQ(work->asked, 0);
}

}  // namespace
}  // namespace lockstep::comm
