#include "checkpoint/throttle.hpp"

#include <thread>

#include <gtest/gtest.h>

namespace lockstep::checkpoint {
namespace {

using std::chrono::steady_clock, std::chrono::duration;

double seconds_of_rest(Throttle& throttle) {
  const auto start = steady_clock::now();
  throttle.rest();
  return duration<double>(steady_clock::now() - start).count();
}

TEST(Throttle, WorkOfASaveTakesAFewPercentOfTheTime) {
  Throttle throttle;
  throttle.begin(20);
  throttle.spend(0.002);
  EXPECT_GE(seconds_of_rest(throttle), 0.02);
  throttle.spend(0.002);
  EXPECT_GE(seconds_of_rest(throttle), 0.02);
  EXPECT_GE(throttle.rested(), 0.04);
}

TEST(Throttle, NothingRestsWhileSomebodyWaitsForTheSave) {
  Throttle throttle;
  throttle.begin(20);
  throttle.spend(1000);
  EXPECT_FALSE(throttle.hurries());
  std::thread waiting([&] { throttle.hurry(); });
  EXPECT_LT(seconds_of_rest(throttle), 15);
  waiting.join();
  EXPECT_TRUE(throttle.hurries());
  throttle.spend(1000);
  EXPECT_LT(seconds_of_rest(throttle), 15);
}

TEST(Throttle, RestsOfTwoThreadsAtATimeCountOnce) {
  Throttle throttle;
  throttle.begin(20);
  throttle.spend(0.003);
  const auto start = steady_clock::now();
  {
    const std::jthread first([&] { throttle.rest(); }), second([&] { throttle.rest(); });
  }
  EXPECT_GT(throttle.rested(), 0);
  EXPECT_LE(throttle.rested(), duration<double>(steady_clock::now() - start).count());
}

TEST(Throttle, RestsMakeASaveNoLongerThanItMayBe) {
  Throttle throttle;
  throttle.begin(0.05);
  throttle.spend(1000);
  EXPECT_LT(seconds_of_rest(throttle), 15);
}

TEST(Throttle, WhileOthersRestThisRankDoes) {
  Throttle throttle;
  throttle.begin(20);
  EXPECT_EQ(throttle.rest_with_others([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return 5;
  }),
            5);
  EXPECT_GE(throttle.rested(), 0.02);
}

}  // namespace
}  // namespace lockstep::checkpoint
