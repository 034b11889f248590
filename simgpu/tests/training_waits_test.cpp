#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "simgpu/simgpu.hpp"

// A step of training queues its work and goes on.

namespace simgpu {
namespace {

using namespace lockstep;

constexpr Device device = cuda(0);

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
      {.batch_size = 4, .drop_last = true, .num_workers = 1, .device = device}};
  optim::AdamW optimizer;
  optim::LRScheduler scheduler;

  Training()
      : optimizer((model->to(device), model->named_parameters())),
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

TEST(SimTraining, ALossThatIsReadAtOnceIsAWait) {
  Training training;
  auto batch = training.loader.begin();
  const HostCopy loss = training.step(*batch);
  const HostWaits waits;
  loss.item();
  EXPECT_NE(waits.describe().find("HostCopy::wait"), std::string::npos) << waits.describe();
}

}  // namespace
}  // namespace simgpu
