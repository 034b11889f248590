#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "simgpu/simgpu.hpp"

// A step of training queues its work and goes on.

namespace simgpu {
namespace {

using namespace lockstep;

data::TokenDataset text() {
  std::string bytes;
  for (int i = 0; i < 4000; ++i) bytes += static_cast<char>('a' + i * i % 26);
  return data::TokenDataset::from_text(bytes, {.context = 16});
}

/// What train_gpt does in a step, but for the ranks.
struct Training {
  nn::ModulePtr<models::Gpt2> model = models::gpt2(
      {.layers = 2, .heads = 2, .channels = 32, .context = 16, .vocabulary = 256, .dropout = 0.1});
  data::DataLoader<data::TokenDataset> loader{
      text(),
      data::RandomSampler(text().size(), 1),
      {.batch_size = 4, .drop_last = true, .num_workers = 1, .device = cuda(0)}};
  optim::AdamW optimizer;
  optim::LRScheduler scheduler;

  Training()
      : optimizer((model->to(cuda(0)), model->named_parameters())),
        scheduler(optimizer, optim::LinearLR{.iterations = 100}) {}

  HostCopy step(const data::TokenBatch& batch) {
    const Tensor logits = model->forward(batch.tokens);
    const Tensor loss = cross_entropy(logits.reshape({-1, 256}), batch.targets.reshape({-1}));
    loss.backward();
    optim::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    scheduler.step();
    return HostCopy(loss);
  }
};

TEST(SimTraining, StepsMakeTheHostWaitForNothing) {
  const std::size_t found_before = findings();
  Training training;
  auto batch = training.loader.begin();
  for (int warm_up = 0; warm_up < 3; ++warm_up, ++batch) training.step(*batch);
  std::vector<HostCopy> losses;
  {
    const HostWaits waits;
    for (int step = 0; step < 4; ++step, ++batch) losses.push_back(training.step(*batch));
    EXPECT_EQ(waits.count(), 0u) << waits.describe();
  }
  for (const HostCopy& loss : losses) EXPECT_LT(loss.item(), 6.0);
  EXPECT_EQ(findings(), found_before);
}

/// Launches of a step of an optimizer whose states are there, for a model of many parameters.
template <class O>
std::size_t launches_of_a_step(typename O::Options options) {
  std::vector<Tensor> parameters;
  for (std::int64_t i = 0; i < 300; ++i) {
    // One of several blocks among small ones.
    parameters.push_back(zeros({i == 7 ? 100'000 : 8}, {.device = cuda(0)}).set_requires_grad());
    parameters.back().set_grad(ones(parameters.back().shape(), {.device = cuda(0)}));
  }
  O optimizer(parameters, options);
  optimizer.step();
  const std::size_t before = launches();
  optimizer.step();
  return launches() - before;
}

TEST(SimTraining, AStepOfAnOptimizerIsOneLaunch) {
  EXPECT_EQ(launches_of_a_step<optim::SGD>({.momentum = 0.9}), 1u);
  EXPECT_EQ(launches_of_a_step<optim::AdamW>({}), 1u);
  EXPECT_EQ(launches_of_a_step<optim::NAdam>({}), 1u);
  // The first pass, and zeros for its sums.
  EXPECT_LE(launches_of_a_step<optim::LAMB>({}), 3u);
}

/// Launches of a step by scaled gradients, from the end of backward on.
std::size_t launches_of_a_scaled_step(void (*step)(amp::GradScaler&, optim::AdamW&)) {
  std::vector<Tensor> parameters;
  for (std::int64_t i = 0; i < 300; ++i) {
    parameters.push_back(zeros({i == 7 ? 100'000 : 8}, {.device = cuda(0)}).set_requires_grad());
    parameters.back().set_grad(ones(parameters.back().shape(), {.device = cuda(0)}));
  }
  optim::AdamW optimizer(parameters, {});
  amp::GradScaler scaler;
  scaler.scale(ones({}, {.device = cuda(0)}));
  std::size_t count = 0;
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    const std::size_t before = launches();
    step(scaler, optimizer);
    scaler.update();
    count = launches() - before;
  }
  return count;
}

TEST(SimTraining, AScaledStepReadsGradientsInOnePass) {
  // The sum of squares and its last sum, what they mean, the step, the next scale.
  EXPECT_EQ(
      launches_of_a_scaled_step([](auto& scaler, auto& optimizer) { scaler.step(optimizer); }), 5u);
  EXPECT_EQ(launches_of_a_scaled_step(
                [](auto& scaler, auto& optimizer) { scaler.clip_and_step(optimizer, 1.0); }),
            5u);
  // Clipping writes to the gradients.
  EXPECT_EQ(launches_of_a_scaled_step([](auto& scaler, auto& optimizer) {
              const Tensor norm = scaler.unscale_(optimizer);
              optim::clip_grad_norm_(optimizer.parameters(), 1.0, {.norm = norm});
              scaler.step(optimizer);
            }),
            6u);
}

TEST(SimTraining, AnAverageOfTheWeightsIsOneLaunch) {
  std::vector<Tensor> parameters(300);
  for (Tensor& parameter : parameters) parameter = zeros({8}, {.device = cuda(0)});
  optim::WeightAverage average(parameters);
  average.update();
  const std::size_t before = launches();
  average.update();
  EXPECT_EQ(launches() - before, 1u);
}

TEST(SimTraining, ALossThatIsReadAtOnceIsAWait) {
  Training training;
  auto batch = training.loader.begin();
  const HostCopy loss = training.step(*batch);
  const HostWaits waits;
  loss.item();
  EXPECT_NE(waits.describe().find("HostCopy::wait"), std::string::npos) << waits.describe();
}

// The statistics and what they are for; in backward the sums and the input's gradient.
TEST(SimTraining, ABatchNormIsTwoLaunchesEachWay) {
  const TensorOptions bf16{DType::bf16, cuda(0)};
  const nn::ModulePtr<nn::BatchNorm2d> norm = nn::make<nn::BatchNorm2d>(16);
  norm->to(cuda(0));
  const Tensor x = randn({4, 16, 64, 64}, bf16).set_requires_grad(true);
  const Tensor dy = randn({4, 16, 64, 64}, bf16);
  std::size_t before = launches();
  const Tensor y = norm->forward(x);
  EXPECT_EQ(launches() - before, 2u);
  before = launches();
  y.backward(dy);
  EXPECT_EQ(launches() - before, 2u + 1u) << "and the copy that x keeps, which is a leaf";
}

}  // namespace
}  // namespace simgpu
