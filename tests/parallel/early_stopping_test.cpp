#include "lockstep/train/early_stopping.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "parallel/small_training.hpp"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(EarlyStopping, StopsAfterSoManyEvaluationsInARowWithoutImprovement) {
  EarlyStopping stopping({.patience = 2});
  const std::vector<double> metrics{3, 4, 2, 2, std::nan("")};
  std::vector<bool> best;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_FALSE(stopping.should_stop());
    best.push_back(stopping.update(static_cast<std::int64_t>(10 * i), metrics[i]));
  }
  EXPECT_THAT(best, ElementsAre(true, false, true, false, false));
  EXPECT_TRUE(stopping.should_stop());
  EXPECT_EQ(stopping.state(),
            (EarlyStopping::State{.best = 2, .best_step = 20, .bad_evaluations = 2}));
}

TEST(EarlyStopping, CountsImprovementsAboveMinDeltaAlone) {
  EarlyStopping stopping({.patience = 1, .min_delta = 0.5});
  EXPECT_TRUE(stopping.update(1, 3));
  EXPECT_TRUE(stopping.update(2, 2.5));  // the best so far, and no improvement
  EXPECT_TRUE(stopping.should_stop());
  EXPECT_EQ(
      stopping.state(),
      (EarlyStopping::State{.best = 2.5, .best_step = 2, .bad_evaluations = 1, .reference = 3}));
  EarlyStopping resumed({.patience = 1, .min_delta = 0.5});
  state_of(resumed).load(state_of(stopping).values());
  EXPECT_EQ(resumed.state(), stopping.state());
  EXPECT_TRUE(resumed.update(3, 2.4));  // less than 3 by more than 0.5, and than 2.5 by less
  EXPECT_FALSE(resumed.should_stop());
  EXPECT_EQ(resumed.state(), (EarlyStopping::State{.best = 2.4, .best_step = 3}));
}

TEST(EarlyStopping, NeverStopsWithoutPatience) {
  EarlyStopping stopping;
  for (int step = 0; step < 1000; ++step) stopping.update(step, infinity);
  EXPECT_FALSE(stopping.should_stop());
  EXPECT_EQ(stopping.state().best_step, -1);
}

TEST(EarlyStopping, RefusesOptionsOutOfRange) {
  EXPECT_THAT([] { EarlyStopping({.patience = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a patience of -1")));
  EXPECT_THAT([] { EarlyStopping({.patience = 1, .min_delta = std::nan("")}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a min_delta of nan")));
}

}  // namespace
}  // namespace lockstep::train
