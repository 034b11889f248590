#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"

namespace lockstep {
namespace {

using namespace optim;

/// PyTorch's schedules of the golden file, by its names.
const std::vector<std::pair<std::string, Schedule>>& schedules() {
  static const std::vector<std::pair<std::string, Schedule>> all = {
      {"step(size=7,gamma=0.5)", StepLR{.step_size = 7, .gamma = 0.5}},
      {"multistep([5,12,30],gamma=0.1)", MultiStepLR{.milestones = {5, 12, 30}, .gamma = 0.1}},
      {"exponential(gamma=0.95)", ExponentialLR{.gamma = 0.95}},
      {"cosine(T_max=30,eta_min=0.001)", CosineAnnealingLR{.iterations = 30, .min_lr = 0.001}},
      {"cosine_restarts(T_0=6,T_mult=2)",
       CosineAnnealingWarmRestarts{.iterations = 6, .multiplier = 2}},
      {"linear(start=0.1,end=1,iters=10)", LinearLR{.start_factor = 0.1, .iterations = 10}},
      {"polynomial(total=30,power=2)", PolynomialLR{.iterations = 30, .power = 2}},
      {"warmup(5)+cosine(25)",
       SequentialLR{.schedules = {LinearLR{.start_factor = 0.2, .iterations = 5},
                                  CosineAnnealingLR{.iterations = 25}},
                    .milestones = {5}}},
  };
  return all;
}

TEST(GoldenSchedules, FollowPytorch) {
  std::ifstream in(testing::golden_dir() / "schedules.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  for (const auto& [name, schedule] : schedules()) {
    bool found = false;
    for (const auto& item : golden.at("schedules")) {
      if (item.at("name") != name) continue;
      found = true;
      const double base = item.at("base_lr");
      for (std::size_t step = 0; step < item.at("lr").size(); ++step)
        EXPECT_NEAR(schedule(base, static_cast<std::int64_t>(step)),
                    item.at("lr")[step].get<double>(), 1e-9 * base)
            << name << ", step " << step;
    }
    EXPECT_TRUE(found) << name;
  }
}

TEST(Schedules, ConstantStaysAtTheBase) {
  EXPECT_EQ(ConstantLR{}(0.3, 100), 0.3);
  const ConstantLR held{.factor = 0.5, .iterations = 2};
  EXPECT_EQ(held(0.4, 1), 0.2);
  EXPECT_EQ(held(0.4, 2), 0.4);
}

TEST(Schedules, RefuseImpossibleLengths) {
  EXPECT_THROW(StepLR{.step_size = 0}(1.0, 0), InvalidArgument);
  EXPECT_THROW(CosineAnnealingLR{.iterations = 0}(1.0, 0), InvalidArgument);
  const SequentialLR uneven{.schedules = {ConstantLR{}}, .milestones = {3}};
  EXPECT_THROW(uneven(1.0, 0), InvalidArgument);
}

TEST(LRScheduler, SetsTheRatesOfAllGroupsFromTheirOwnBase) {
  const Tensor a = ones({1}).set_requires_grad(), b = ones({1}).set_requires_grad();
  SGD optimizer(SGD::Groups{{{a}, {.lr = 0.1}}, {{b}, {.lr = 1.0}}});
  LRScheduler scheduler(optimizer, LinearLR{.start_factor = 0.5, .iterations = 2});
  EXPECT_DOUBLE_EQ(optimizer.lr(0), 0.05);
  scheduler.step();
  EXPECT_DOUBLE_EQ(optimizer.lr(1), 0.75);
  scheduler.step();
  scheduler.step();
  EXPECT_DOUBLE_EQ(optimizer.lr(0), 0.1);
  scheduler.set_steps(0);
  EXPECT_DOUBLE_EQ(optimizer.lr(1), 0.5);
  EXPECT_THROW(scheduler.set_steps(-1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
