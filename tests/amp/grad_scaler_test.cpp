#include "lockstep/amp/grad_scaler.hpp"

#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/replicas.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"

namespace lockstep::amp {
namespace {

using ::testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();

class GradScalerOn : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(place)) GTEST_SKIP() << "no CUDA device on this machine";
  }
  Tensor parameter(const std::vector<double>& values, DType dtype = DType::f32) const {
    return tensor<double>(values).to(place.device, dtype).set_requires_grad();
  }
  Tensor one(double value = 1) const { return full({}, value, {.device = place.device}); }
  /// Scales a loss, so that the scaler knows its device, and gives the parameter a gradient.
  void backward(GradScaler& scaler, Tensor& x, double gradient) const {
    const Tensor loss = scaler.scale(one());
    x.set_grad(full(x.shape(), gradient * loss.item(), {x.dtype(), place.device}));
  }
  void run_step(GradScaler& scaler, optim::Optimizer& optimizer, Tensor& x, double gradient) const {
    backward(scaler, x, gradient);
    scaler.step(optimizer);
    scaler.update();
  }

  testing::Place place = GetParam();
  testing::PlaceScope scope{place};
};

TEST_P(GradScalerOn, FollowsPytorch) {
  std::ifstream in(testing::golden_dir() / "schedules.json");
  const auto golden = nlohmann::json::parse(in).at("grad_scaler");
  GradScaler scaler({.init_scale = golden.at("init_scale"),
                     .growth_factor = golden.at("growth_factor"),
                     .backoff_factor = golden.at("backoff_factor"),
                     .growth_interval = golden.at("growth_interval")});
  Tensor x = parameter({1, 2, 3});
  optim::SGD optimizer({x}, {.lr = 0.1});
  for (std::size_t step = 0; step < golden.at("found_inf").size(); ++step) {
    run_step(scaler, optimizer, x, golden.at("found_inf")[step] ? infinity : 1);
    EXPECT_EQ(scaler.get_scale(), golden.at("scale_after")[step].get<double>()) << step;
  }
}

TEST_P(GradScalerOn, StartsAndMovesAsPytorchByDefault) {
  GradScaler scaler;
  EXPECT_EQ(scaler.get_scale(), 65536);
  Tensor x = parameter({1});
  optim::SGD optimizer({x}, {.lr = 0.1});
  run_step(scaler, optimizer, x, infinity);
  EXPECT_EQ(scaler.get_scale(), 32768);
  NamedTensors state = scaler.state_dict();
  for (auto& [name, value] : state)
    if (name == "growth_tracker") value.fill_(1998);
  scaler.load_state_dict(state);
  run_step(scaler, optimizer, x, 0);
  EXPECT_EQ(scaler.get_scale(), 32768);
  run_step(scaler, optimizer, x, 0);
  EXPECT_EQ(scaler.get_scale(), 65536);
}

TEST_P(GradScalerOn, AStepWithScaledGradientsIsThatWithout) {
  for (const bool unscales : {false, true}) {
    Tensor x = parameter({1, -2, 3}), y = parameter({1, -2, 3});
    optim::AdamW scaled({x}, {.lr = 0.1}), plain({y}, {.lr = 0.1});
    GradScaler scaler;
    for (int step = 0; step < 3; ++step) {
      scaled.zero_grad();
      plain.zero_grad();
      scaler.scale(sum(x * x)).backward();
      sum(y * y).backward();
      if (unscales) {
        const Tensor known = scaler.unscale_(scaled);
        EXPECT_TRUE(equal(x.grad(), y.grad()));
        const double norm = optim::clip_grad_norm_(std::vector{x}, 1.0, {.norm = known}).item();
        EXPECT_DOUBLE_EQ(norm, optim::clip_grad_norm_(std::vector{y}, 1.0).item());
      }
      scaler.step(scaled);
      plain.step();
      scaler.update();
      EXPECT_TRUE(equal(x.detach(), y.detach())) << step;
    }
  }
}

TEST_P(GradScalerOn, AStepThatClipsIsThatOfClippedGradients) {
  for (const bool enabled : {false, true})
    for (const bool unscales : {false, true}) {
      Tensor x = parameter({1, -2, 3}), y = parameter({1, -2, 3});
      optim::AdamW clips({x}, {.lr = 0.1}), plain({y}, {.lr = 0.1});
      GradScaler scaler({.enabled = enabled});
      for (const double max_norm : {1.0, 1e3, 2.0}) {
        clips.zero_grad();
        plain.zero_grad();
        scaler.scale(sum(x * x)).backward();
        sum(y * y).backward();
        if (unscales) scaler.unscale_(clips);
        const Tensor before = x.grad().clone();
        const double norm = scaler.clip_and_step(clips, max_norm).item();
        EXPECT_TRUE(equal(x.grad(), before));
        scaler.update();
        EXPECT_DOUBLE_EQ(norm, optim::clip_grad_norm_(std::vector{y}, max_norm).item());
        plain.step();
        const auto stepped = x.to_vector<double>(), expected = y.to_vector<double>();
        for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(stepped[i], expected[i], 1e-6);
      }
    }
}

TEST_P(GradScalerOn, LargeGradientsAreNoInf) {
  for (const bool unscales : {false, true}) {
    Tensor x = parameter({1, 2});
    optim::SGD optimizer({x}, {.lr = 1});
    GradScaler scaler;
    backward(scaler, x, 0x1p70);  // 2^86 with its scale: its square is beyond f32
    if (unscales) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 65536);
    EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{-0x1p70, -0x1p70}));
  }
}

TEST_P(GradScalerOn, ASkippedStepChangesAndCountsNothing) {
  for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    for (const bool unscales : {false, true}) {
      Tensor x = parameter({1, 2}), y = parameter({3}, DType::bf16);
      optim::Adam optimizer({x, y}, {.lr = 0.1});
      GradScaler scaler;
      y.set_grad(ones({1}, {DType::bf16, place.device}));
      run_step(scaler, optimizer, x, 1);
      const Tensor before = x.detach().clone(), other = y.detach().clone();
      const NamedTensors state = optimizer.state_dict();
      NamedTensors copies;
      for (const auto& [key, value] : state) copies.emplace_back(key, value.clone());
      backward(scaler, x, 1);
      y.set_grad(full({1}, bad, {DType::bf16, place.device}));
      if (unscales) scaler.unscale_(optimizer);
      scaler.step(optimizer);
      scaler.update();
      EXPECT_TRUE(equal(x.detach(), before));
      EXPECT_TRUE(equal(y.detach(), other));
      const NamedTensors after = optimizer.state_dict();
      for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_TRUE(equal(after[i].second, copies[i].second)) << after[i].first;
    }
  }
}

TEST_P(GradScalerOn, AnotherOptimizersGradientsDoNotSkipAStepButLowerTheScale) {
  Tensor x = parameter({1}), y = parameter({1});
  optim::SGD first({x}, {.lr = 0.5}), second({y}, {.lr = 0.5});
  GradScaler scaler({.init_scale = 8});
  backward(scaler, x, 1);
  backward(scaler, y, infinity);
  scaler.step(first);
  scaler.step(second);
  scaler.update();
  EXPECT_EQ(x.item(), 0.5);
  EXPECT_EQ(y.item(), 1);
  EXPECT_EQ(scaler.get_scale(), 4);
}

// The gradients, 8e-9 at most, are below half of the smallest number of f16.
TEST_P(GradScalerOn, GradientsThatVanishInHalfPrecisionTrainWithIt) {
  constexpr double slope = 1e-6 / 64;
  for (const bool enabled : {false, true}) {
    Tensor w = full({64}, 0.5, {DType::f16, place.device}).set_requires_grad();
    const Tensor target = full({64}, -0.25, {DType::f16, place.device});
    optim::SGD optimizer({w}, {.lr = 0.25 / slope});
    GradScaler scaler({.enabled = enabled});
    double loss_value = 0;
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const Tensor difference = (w - target).to(DType::f32);
      const Tensor loss = sum(difference * difference) * slope;
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
      loss_value = loss.item() / slope / 64;
    }
    if (enabled)
      EXPECT_LT(loss_value, 1e-6);
    else
      EXPECT_NEAR(loss_value, 0.5625, 1e-6);
  }
}

TEST_P(GradScalerOn, EndsATrainingWhoseGradientsAreNeverFinite) {
  GradScaler scaler({.max_skipped_steps = 20});
  Tensor x = parameter({1});
  optim::SGD optimizer({x}, {.lr = 0.1});
  int steps = 0;
  try {
    for (; steps < 100; ++steps) run_step(scaler, optimizer, x, infinity);
    FAIL() << "went on";
  } catch (const GradientOverflow& error) {
    EXPECT_THAT(error.what(), HasSubstr("steps were skipped"));
  }
  EXPECT_GE(steps, 19);
  EXPECT_LT(steps, 32);
}

TEST_P(GradScalerOn, SeesShortRunsOfSkippedStepsWhereFewEndTheTraining) {
  for (const int limit : {1, 3}) {
    GradScaler scaler({.max_skipped_steps = limit});
    Tensor x = parameter({1});
    optim::SGD optimizer({x}, {.lr = 0.1});
    const auto train = [&] {
      for (int step = 0; step < 64; ++step)
        run_step(scaler, optimizer, x, step % 8 == 0 || step % 8 == 7 ? 0.0 : infinity);
    };
    EXPECT_THROW(train(), GradientOverflow) << limit;
  }
}

TEST_P(GradScalerOn, TheScaleNeitherVanishesNorOverflows) {
  Tensor x = parameter({1});
  optim::SGD optimizer({x}, {.lr = 0.1});
  GradScaler falls({.max_skipped_steps = 1000});
  for (int step = 0; step < 300; ++step) run_step(falls, optimizer, x, infinity);
  EXPECT_GT(static_cast<float>(falls.get_scale()), 0.0F);
  GradScaler grows({.growth_interval = 1});
  for (int step = 0; step < 300; ++step) run_step(grows, optimizer, x, 0);
  EXPECT_TRUE(std::isfinite(static_cast<float>(grows.get_scale())));
}

TEST_P(GradScalerOn, ContinuesFromItsState) {
  const GradScalerOptions options{.init_scale = 256, .growth_interval = 3};
  Tensor x = parameter({1});
  optim::SGD optimizer({x}, {.lr = 0.1});
  GradScaler scaler(options), resumed;
  const auto gradient = [](int step) { return step % 5 == 4 ? infinity : 0; };
  for (int step = 0; step < 6; ++step) run_step(scaler, optimizer, x, gradient(step));
  resumed.load_state_dict(scaler.state_dict());
  for (int step = 6; step < 20; ++step) {
    run_step(scaler, optimizer, x, gradient(step));
    run_step(resumed, optimizer, x, gradient(step));
    EXPECT_EQ(resumed.get_scale(), scaler.get_scale()) << step;
  }
  NamedTensors broken = scaler.state_dict();
  broken.pop_back();
  EXPECT_THROW(resumed.load_state_dict(broken), InvalidArgument);
  EXPECT_EQ(resumed.get_scale(), scaler.get_scale());
}

TEST_P(GradScalerOn, LossesOfHalfPrecisionAreScaledInF32) {
  GradScaler scaler;
  const Tensor loss = full({}, 100, {DType::f16, place.device});
  EXPECT_EQ(scaler.scale(loss).dtype(), DType::f32);
  EXPECT_EQ(scaler.scale(loss).item(), 6553600);
}

TEST_P(GradScalerOn, TakesANewScale) {
  GradScaler scaler;
  Tensor x = parameter({1});
  optim::SGD optimizer({x}, {.lr = 0.1});
  run_step(scaler, optimizer, x, 1);
  scaler.update(16.0);
  EXPECT_EQ(scaler.get_scale(), 16);
  EXPECT_THROW(scaler.update(0.0), InvalidArgument);
  EXPECT_THROW(scaler.update(infinity), InvalidArgument);
}

TEST_P(GradScalerOn, RefusesCallsOutOfOrder) {
  Tensor x = parameter({1}), half = parameter({1}, DType::f16);
  optim::SGD optimizer({x}, {.lr = 0.1}), of_half({half}, {.lr = 0.1});
  GradScaler scaler;
  EXPECT_THROW(scaler.step(optimizer), InvalidArgument);  // before any scale()
  EXPECT_THROW(scaler.update(), InvalidArgument);
  scaler.scale(one());
  EXPECT_THROW(scaler.step(optimizer), InvalidArgument);  // without gradients
  EXPECT_THROW(scaler.update(), InvalidArgument);
  backward(scaler, x, 1);
  backward(scaler, half, 1);
  EXPECT_THROW(scaler.unscale_(of_half), InvalidArgument);
  scaler.unscale_(optimizer);
  EXPECT_THROW(scaler.unscale_(optimizer), InvalidArgument);
  scaler.step(optimizer);
  EXPECT_THROW(scaler.unscale_(optimizer), InvalidArgument);
  EXPECT_THROW(scaler.step(optimizer), InvalidArgument);
  EXPECT_THROW(scaler.clip_and_step(optimizer, 1), InvalidArgument);
  EXPECT_THROW(scaler.clip_and_step(optimizer, -1), InvalidArgument);
  scaler.update();
  scaler.unscale_(optimizer);
}

INSTANTIATE_TEST_SUITE_P(Places, GradScalerOn, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

TEST(GradScaler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(GradScaler({.init_scale = 0}), InvalidArgument);
  EXPECT_THROW(GradScaler({.growth_factor = 1}), InvalidArgument);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), InvalidArgument);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), InvalidArgument);
  EXPECT_THROW(GradScaler({.max_skipped_steps = 0}), InvalidArgument);
}

TEST(GradScaler, PassesEverythingUnchangedWhenNotEnabled) {
  Tensor x = tensor<double>({2}).set_requires_grad();
  optim::SGD optimizer({x}, {.lr = 0.25});
  GradScaler scaler({.enabled = false});
  const Tensor loss = sum(x * x);
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(x.item(), 1);
  EXPECT_EQ(scaler.get_scale(), 1);
}

TEST(GradScaler, AnOptimizerRefusesAScalingThatItsKernelsCannotRead) {
  Tensor x = tensor<double>({2}).set_requires_grad();
  x.set_grad(tensor<double>({1}));
  optim::SGD optimizer({x}, {.lr = 0.25});
  EXPECT_THROW(optimizer.step({.scale = ones({}), .found_inf = {}, .how = {}}), InvalidArgument);
  EXPECT_EQ(x.item(), 2);
}

using parallel::testing::Batch;
using parallel::testing::Replica;

// What one rank alone finds reaches all through the averages.
TEST(GradScalerOnRanks, AllSkipWhatOneFinds) {
  comm::run_ranks(3, [](comm::Communicator& group) {
    const auto net = parallel::testing::make_net(1);
    Replica replica(net, parallel::testing::share(group));
    optim::AdamW optimizer(replica.parameters(), {.lr = 0.1});
    GradScaler scaler;
    for (int step = 0; step < 4; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      optimizer.zero_grad();
      const Tensor loss = parallel::testing::loss_of(replica(batch.x), batch);
      const std::vector<Tensor> parameters = replica.parameters();
      const Tensor before = parameters[0].detach().clone();
      scaler.scale(step == 2 && group.rank() == 1 ? loss * infinity : loss).backward();
      scaler.step(optimizer);
      scaler.update();
      EXPECT_EQ(equal(parameters[0].detach(), before), step == 2) << step;
    }
    EXPECT_EQ(scaler.get_scale(), 32768);
    for (const auto& [name, value] : optimizer.state_dict())
      if (name.ends_with(".step")) {
        EXPECT_EQ(value.item(), 3) << name;
      }
    parallel::testing::expect_equal_replicas(group, *net);
  });
}

TEST(GradScalerOnRanks, AGroupThatSharesOutTheGradientsSkipsTogether) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    Tensor x = tensor<double>({1}).set_requires_grad();
    optim::SGD optimizer({x}, {.lr = 0.5});
    GradScaler scaler({.group = parallel::testing::share(group)});
    for (const double bad : {infinity, 1.0}) {
      const Tensor loss = scaler.scale(ones({}, {.dtype = DType::f64}));
      const double gradient = (group.rank() == 1 ? bad : 1.0) * loss.item();
      x.set_grad(tensor<double>({gradient}));
      scaler.step(optimizer);
      scaler.update();
      EXPECT_EQ(x.item(), bad == infinity ? 1 : 0.5);
    }
    EXPECT_EQ(scaler.get_scale(), 32768);
  });
}

TEST(GradScalerOnRanks, AGroupThatSharesOutTheGradientsClipsByTheNormOfAll) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    Tensor own = tensor<double>({0}).set_requires_grad(),
           same = zeros_like(own).set_requires_grad();
    optim::SGD optimizer({own, same}, {.lr = 1});
    GradScaler scaler({.init_scale = 4, .group = parallel::testing::share(group)});
    scaler.scale(ones({}, {.dtype = DType::f64}));
    own.set_grad(tensor<double>({group.rank() == 0 ? 4.0 : 12.0}));  // 1 and 3
    same.set_grad(tensor<double>({12.0 * 4}));
    const Tensor norm = scaler.clip_and_step(optimizer, 1.0, {&same, 1});
    EXPECT_DOUBLE_EQ(norm.item(), std::sqrt(1 + 9 + 144));
    EXPECT_NEAR(same.item(), -12 / norm.item(), 1e-6);
  });
}

TEST(GradScalerOnRanks, OneRankWithAnotherScaleIsRefused) {
  EXPECT_THROW(comm::run_ranks(
                   2,
                   [](comm::Communicator& group) {
                     Replica replica(parallel::testing::make_net(1),
                                     parallel::testing::share(group));
                     optim::SGD optimizer(replica.parameters(), {.lr = 0.1});
                     GradScaler scaler({.init_scale = group.rank() == 0 ? 1024.0 : 2048.0});
                     for (int step = 0; step < 3; ++step) {
                       const Batch batch = Batch::of_step(step);
                       scaler.scale(parallel::testing::loss_of(replica(batch.x), batch)).backward();
                       scaler.step(optimizer);
                       scaler.update();
                     }
                   }),
               comm::Mismatch);
}

TEST(GradScaler, AHookMayStepAnotherOptimizer) {
  Tensor a = ones({1}).set_requires_grad(), b = ones({1}).set_requires_grad();
  optim::SGD first({a}, {.lr = 0.1}), second({b}, {.lr = 0.1});
  GradScaler scaler({.init_scale = 4});
  first.register_step_post_hook([&] { scaler.step(second); });
  scaler.scale(a.sum() + b.sum()).backward();
  scaler.step(first);
  EXPECT_THROW(scaler.step(first), InvalidArgument);  // a second time
  EXPECT_THROW(scaler.step(second), InvalidArgument);
  scaler.update();
  EXPECT_NEAR(a.item(), 0.9, 1e-6);
  EXPECT_NEAR(b.item(), 0.9, 1e-6);
}

}  // namespace
}  // namespace lockstep::amp
