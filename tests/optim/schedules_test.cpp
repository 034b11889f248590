#include <algorithm>
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/observe/log.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"

namespace lockstep::optim {
namespace {

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

nlohmann::json golden_schedules() {
  std::ifstream in(testing::golden_dir() / "schedules.json");
  return nlohmann::json::parse(in);
}

TEST(GoldenSchedules, FollowPytorch) {
  const nlohmann::json golden = golden_schedules();
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

TEST(GoldenSchedules, AreAllFollowed) {
  const nlohmann::json golden = golden_schedules();
  for (const auto& item : golden.at("schedules")) {
    const std::string name = item.at("name");
    const bool listed =
        std::ranges::any_of(schedules(), [&](const auto& each) { return each.first == name; });
    EXPECT_TRUE(listed || name.starts_with("one_cycle") || name.starts_with("plateau")) << name;
  }
}

// The row was recorded with total_steps = 41, and lacks the last of its rates.
TEST(GoldenSchedules, OneCycleStartsFromItsPeak) {
  const nlohmann::json golden = golden_schedules();
  int found = 0;
  for (const auto& item : golden.at("schedules")) {
    if (item.at("name") != "one_cycle(max_lr=1,total=40)") continue;
    ++found;
    for (std::size_t step = 0; step < 40; ++step)
      EXPECT_NEAR(OneCycleLR{.iterations = 41}(1.0, static_cast<std::int64_t>(step)),
                  item.at("lr")[step].get<double>(), 1e-9)
          << "step " << step;
  }
  EXPECT_EQ(found, 1);
  // PyTorch 2.15's of total_steps = 40, from one end to the other.
  const OneCycleLR of_40{.iterations = 40};
  for (const auto& [step, rate] : {std::pair{0, 0.04},
                                   {1, 0.059443372665041294},
                                   {2, 0.11619830424103306},
                                   {3, 0.2056668477062631},
                                   {11, 1.0},
                                   {38, 0.0031478824777984847},
                                   {39, 4e-06}})
    EXPECT_NEAR(of_40(1.0, step), rate, 1e-12) << "step " << step;
}

TEST(GoldenSchedules, PlateausLowerTheRate) {
  const nlohmann::json golden = golden_schedules();
  int found = 0;
  for (const auto& item : golden.at("schedules")) {
    if (item.at("name") != "plateau(factor=0.5,patience=3)") continue;
    ++found;
    SGD optimizer({ones({1}).set_requires_grad()}, {.lr = item.at("base_lr")});
    ReduceLROnPlateau plateau(optimizer, {.factor = 0.5, .patience = 3});
    for (std::size_t step = 0; step < item.at("lr").size(); ++step) {
      EXPECT_NEAR(optimizer.lr(), item.at("lr")[step].get<double>(), 1e-12) << "step " << step;
      plateau.step(item.at("metric")[step]);
    }
  }
  EXPECT_EQ(found, 1);
}

/// The rates before each of some metrics, of groups that begin with 1 and 0.5.
std::vector<double> rates_of(const ReduceLROnPlateauOptions& options,
                             const std::vector<double>& metrics) {
  const Tensor a = ones({1}).set_requires_grad(), b = ones({1}).set_requires_grad();
  SGD optimizer(SGD::Groups{{{a}, {.lr = 1.0}}, {{b}, {.lr = 0.5}}});
  ReduceLROnPlateau plateau(optimizer, options);
  std::vector<double> rates;
  for (const double metric : metrics) {
    plateau.step(metric);
    rates.push_back(optimizer.lr(0));
    EXPECT_EQ(optimizer.lr(1), std::max(optimizer.lr(0) / 2, options.min_lr));
  }
  return rates;
}

using Rates = std::vector<double>;

TEST(ReduceLROnPlateau, WaitsOutItsCooldown) {
  EXPECT_EQ(rates_of({.factor = 0.5, .patience = 0, .cooldown = 2}, {1, 1, 1, 1, 1, 1}),
            (Rates{1, 0.5, 0.5, 0.5, 0.25, 0.25}));
}

TEST(ReduceLROnPlateau, FollowsMetricsThatShallGrow) {
  EXPECT_EQ(
      rates_of(
          {.maximize = true, .factor = 0.5, .patience = 0, .threshold = 0.5, .relative = false},
          {1, 2, 2.4, 4}),
      (Rates{1, 1, 0.5, 0.5}));
}

TEST(ReduceLROnPlateau, StopsAtTheLeastRate) {
  EXPECT_EQ(rates_of({.factor = 0.5, .patience = 0, .min_lr = 0.25}, {1, 1, 1, 1}),
            (Rates{1, 0.5, 0.25, 0.25}));
}

TEST(ReduceLROnPlateau, GoesOnFromItsState) {
  SGD optimizer({ones({1}).set_requires_grad()}, {.lr = 1.0});
  ReduceLROnPlateau first(optimizer, {.patience = 1}), second(optimizer, {.patience = 1});
  first.step(1.0);
  first.step(1.0);
  second.set_state(first.state());
  second.step(1.0);
  EXPECT_DOUBLE_EQ(optimizer.lr(), 0.1);
  EXPECT_EQ(optimizer.base_lr(), 1.0);
}

TEST(ReduceLROnPlateau, RefusesOptionsAndMetricsThatMakeNoSense) {
  SGD optimizer({ones({1}).set_requires_grad()}, {.lr = 1.0});
  EXPECT_THROW(ReduceLROnPlateau(optimizer, {.factor = 1.0}), InvalidArgument);
  EXPECT_THROW(ReduceLROnPlateau(optimizer, {.patience = -1}), InvalidArgument);
  ReduceLROnPlateau plateau(optimizer);
  EXPECT_THROW(plateau.step(std::nan("")), InvalidArgument);
}

void expect_rates(const Schedule& schedule, double base, const std::vector<double>& expected) {
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(schedule(base, static_cast<std::int64_t>(step)), expected[step], 1e-12 * base)
        << "step " << step;
}

// The rates are those of PyTorch 2.15's OneCycleLR with cycle_momentum=False.
TEST(Schedules, OneCycleFollowsPytorch) {
  expect_rates(
      OneCycleLR{.iterations = 10}, 0.5,
      {0.020000000000000018, 0.26, 0.5, 0.47524231600673683, 0.40587282697488153,
       0.30563101096814466, 0.19437098903185537, 0.09412917302511849, 0.024759683993263143, 2e-06});
  expect_rates(
      OneCycleLR{.iterations = 12, .pct_start = 0.25, .div_factor = 10, .final_div_factor = 100},
      0.1,
      {0.009999999999999995, 0.055, 0.1, 0.09698764640825613, 0.08831391993379295,
       0.07502500000000001, 0.05872372647446318, 0.041376273525536834, 0.02507500000000001,
       0.011786080066207053, 0.0031123535917438796, 0.0001});
}

TEST(Schedules, OneCycleFollowsPytorchWhereThePeakLiesBetweenSteps) {
  expect_rates(OneCycleLR{.iterations = 3, .pct_start = 0.5}, 1.0,
               {0.040000000000000036, 0.750001, 4e-06});
  expect_rates(OneCycleLR{.iterations = 10, .pct_start = 0.05}, 1.0,
               {0.9931806789787544, 0.9397371166557421, 0.8386414312497273, 0.7008489089356355,
                0.5412915075774754, 0.3772597474005747, 0.2265290148351029, 0.10543332358282206,
                0.027095270784166084, 4e-06});
}

TEST(Schedules, OneCycleKeepsItsLastRateAndRefusesWhatIsNoCycle) {
  EXPECT_DOUBLE_EQ(OneCycleLR{.iterations = 10}(1.0, 50), 4e-6);
  EXPECT_THROW((OneCycleLR{.iterations = 0}(1.0, 0)), InvalidArgument);
  EXPECT_THROW((OneCycleLR{.iterations = 5, .pct_start = 1.5}(1.0, 0)), InvalidArgument);
  EXPECT_THROW((OneCycleLR{.iterations = 5, .div_factor = 0}(1.0, 0)), InvalidArgument);
}

// PyTorch 2.15: SWALR(optimizer, swa_lr=0.1, anneal_epochs=4), from a rate of 0.5.
TEST(Schedules, SwaGoesToItsRateAndStays) {
  expect_rates(SWALR{.swa_lr = 0.1, .iterations = 4}, 0.5,
               {0.5, 0.44142135623730951, 0.3, 0.15857864376269049, 0.1, 0.1});
  expect_rates(SWALR{.swa_lr = 0.1, .iterations = 4, .linear = true}, 0.5,
               {0.5, 0.4, 0.3, 0.2, 0.1, 0.1});
  EXPECT_THROW((SWALR{.swa_lr = -1.0}(1.0, 0)), InvalidArgument);
}

TEST(Schedules, ConstantHoldsAFactorAndThenTheBase) {
  expect_rates(ConstantLR{}, 0.3, {0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 0.3});  // PyTorch's defaults
  EXPECT_EQ(ConstantLR{.factor = 1}(0.3, 0), 0.3);
  const ConstantLR held{.factor = 0.5, .iterations = 2};
  EXPECT_EQ(held(0.4, 1), 0.2);
  EXPECT_EQ(held(0.4, 2), 0.4);
}

TEST(Schedules, RefuseImpossibleLengths) {
  EXPECT_THROW(StepLR{.step_size = 0}(1.0, 0), InvalidArgument);
  EXPECT_THROW(ConstantLR{.iterations = 0}(1.0, 0), InvalidArgument);
  EXPECT_THROW(CosineAnnealingLR{}(1.0, 0), InvalidArgument);
  EXPECT_THROW(CosineAnnealingWarmRestarts{}(1.0, 0), InvalidArgument);
  EXPECT_THROW(OneCycleLR{}(1.0, 0), InvalidArgument);
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
  optimizer.set_lr(0.2, 0);
  scheduler.set_steps(0);
  EXPECT_DOUBLE_EQ(optimizer.lr(0), 0.1);
}

TEST(LRScheduler, TellsOfAnOptimizerThatWasLoadedWithoutIt) {
  const auto warnings_of = [](bool sets_steps) {
    const Tensor a = ones({1}).set_requires_grad(), b = ones({1}).set_requires_grad();
    SGD saved({a}, {.lr = 1.0}), loaded({b}, {.lr = 1.0});
    LRScheduler of_saved(saved, ExponentialLR{.gamma = 0.5});
    LRScheduler of_loaded(loaded, ExponentialLR{.gamma = 0.5});
    of_saved.step();
    of_saved.step();
    loaded.load_state_dict(saved.state_dict());
    if (sets_steps) of_loaded.set_steps(of_saved.steps());
    std::vector<std::string> lines;
    set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
    of_loaded.step();
    of_loaded.step();
    set_log_sink(nullptr);
    return lines;
  };
  ASSERT_EQ(warnings_of(false).size(), 1u);
  EXPECT_NE(warnings_of(false)[0].find("with the learning rate 0.25"), std::string::npos);
  EXPECT_TRUE(warnings_of(true).empty());
}

TEST(LRScheduler, ChangesNoRateWhereAScheduleFails) {
  const Tensor a = ones({1}).set_requires_grad(), b = ones({1}).set_requires_grad();
  SGD optimizer(SGD::Groups{{{a}, {.lr = 0.1}}, {{b}, {.lr = 1.0}}});
  bool fails = false;
  const Schedule failing = [&](double base, std::int64_t) {
    LOCKSTEP_CHECK(!fails, InvalidArgument, "no rate");
    return base;
  };
  LRScheduler scheduler(optimizer, std::vector<Schedule>{ExponentialLR{.gamma = 0.5}, failing});
  fails = true;
  EXPECT_THROW(scheduler.step(), InvalidArgument);
  EXPECT_DOUBLE_EQ(optimizer.lr(0), 0.1);
}

}  // namespace
}  // namespace lockstep::optim
