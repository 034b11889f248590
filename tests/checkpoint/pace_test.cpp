#include "checkpoint/pace.hpp"

#include <gtest/gtest.h>

namespace lockstep::checkpoint {
namespace {

/// Saves of a run of many steps whose saves cost some time.
struct Simulated {
  int saves = 0, questions = 0;
  double seconds = 0, stalled = 0;
};

Simulated simulate(const SaveInterval& interval, double step_seconds, double stall, double writing,
                   std::int64_t steps) {
  Pace pace(interval);
  pace.begin(0);
  Simulated run;
  double last_save = 0;
  Measured measured;
  for (std::int64_t step = 1; step <= steps; ++step) {
    run.seconds += step_seconds;
    if (step < pace.next_question()) continue;
    ++run.questions;
    measured.since_save = run.seconds - last_save;
    measured.a_step = step_seconds;
    if (!pace.decide(step, measured)) continue;
    ++run.saves;
    last_save = run.seconds;
    run.seconds += stall;
    run.stalled += stall;
    measured.stall = stall;
    measured.writing = writing;
  }
  return run;
}

TEST(Pace, SavesSomeSecondsApart) {
  const Simulated run = simulate(SaveInterval::every_seconds(60), 0.25, 0.1, 2, 40'000);
  EXPECT_NEAR(run.saves, run.seconds / 60, 0.05 * run.seconds / 60);
  EXPECT_LT(run.questions, 12 * run.saves);
}

TEST(Pace, SavesAsOftenAsCostsLittle) {
  for (const double stall : {0.01, 0.5}) {
    const Simulated run = simulate(SaveInterval::automatic(0.01), 0.1, stall, 1, 200'000);
    const double cost = run.stalled + run.saves * 0.05 * 1;
    EXPECT_LT(cost / run.seconds, 0.0105);
    EXPECT_GT(cost / run.seconds, 0.009);
  }
}

TEST(Pace, DoesNotSaveBeforeTheLastSaveIsWritten) {
  const Simulated run = simulate(SaveInterval::automatic(0.9), 0.1, 0.001, 30, 10'000);
  EXPECT_LT(run.saves, run.seconds / 30 + 2);
}

}  // namespace
}  // namespace lockstep::checkpoint
