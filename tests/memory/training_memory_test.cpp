#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <lockstep/lockstep.hpp>

#include "lockstep/runtime/info.hpp"

// The pool under steps of training.

namespace lockstep {
namespace {

/// A small transformer and what trains it.
struct Training {
  explicit Training(Device on) : device(on) {
    model->to(device);
    optimizer.emplace(model->named_parameters(), optim::AdamWOptions{.lr = 1e-3});
  }
  void step() {
    const Tensor tokens = randint(0, 64, {2, 16}, {.dtype = DType::i64}).to(device);
    const Tensor logits = model(tokens);
    const Tensor loss = cross_entropy(logits.reshape({-1, 64}), tokens.reshape({-1}));
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
  }

  Device device;
  nn::ModulePtr<models::Gpt2> model = nn::make<models::Gpt2>(models::Gpt2Options{
      .layers = 2, .heads = 2, .channels = 32, .context = 16, .vocabulary = 64});
  std::optional<optim::AdamW> optimizer;
};

void expect_no_upstream_allocation_once_warm(Device device) {
  Training training(device);
  for (int i = 0; i < 3; ++i) training.step();
  const PoolStatistics warm = memory_stats(device);
  for (int i = 0; i < 5; ++i) training.step();
  const PoolStatistics now = memory_stats(device);
  EXPECT_GT(now.allocations, warm.allocations);
  EXPECT_EQ(now.upstream_allocations, warm.upstream_allocations);
  EXPECT_EQ(now.upstream_frees, warm.upstream_frees);
}

TEST(TrainingMemory, ComesFromThePoolAloneOnceItIsWarm) {
  expect_no_upstream_allocation_once_warm(cpu);
}

TEST(TrainingMemory, GpuMemoryComesFromThePoolAloneOnceItIsWarm) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  expect_no_upstream_allocation_once_warm(cuda(0));
}

/// Losses of six steps.
std::vector<float> losses_of(Device device, MemoryPlanner* planner) {
  manual_seed(1);
  const auto model = nn::make<models::Gpt2>(models::Gpt2Options{
      .layers = 2, .heads = 2, .channels = 64, .context = 64, .vocabulary = 512, .dropout = 0.1});
  model->to(device);
  optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-3});
  std::vector<float> losses;
  for (int i = 0; i < 6; ++i) {
    std::optional<Tensor> loss;
    {
      std::unique_ptr<MemoryPlanner::Step> planned;
      if (planner) planned.reset(new MemoryPlanner::Step(planner->step()));
      const Tensor tokens = randint(0, 512, {4, 64}, {.dtype = DType::i64}).to(device);
      loss = cross_entropy(model(tokens).reshape({-1, 512}), tokens.reshape({-1}));
      optimizer.zero_grad();
      loss->backward();
      optimizer.step();
    }
    losses.push_back(loss->item<float>());
  }
  return losses;
}

void expect_planned_steps_do_the_same(Device device) {
  const std::vector<float> losses = losses_of(device, nullptr);
  MemoryPlanner planner(device);
  EXPECT_EQ(losses_of(device, &planner), losses);
  const MemoryPlannerStatistics counts = planner.statistics();
  if (pool_kind() == PoolKind::none) {
    EXPECT_EQ(counts.other_steps, 6u);
    return;
  }
  EXPECT_EQ(counts.recorded_steps, 1u);
  EXPECT_EQ(counts.planned_steps, 4u);
  EXPECT_GT(counts.planned_bytes, std::size_t{1} << 20);
  EXPECT_GE(counts.planned_bytes, counts.most_live_bytes);
}

TEST(TrainingMemory, PlannedStepsDoTheSame) { expect_planned_steps_do_the_same(cpu); }

TEST(TrainingMemory, PlannedStepsDoTheSameOnTheGpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  expect_planned_steps_do_the_same(cuda(0));
}

struct TwoLayers : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 32, 64};
  nn::Child<nn::Linear> second{this, "second", 64, 8};
  Tensor forward(const Tensor& x) { return second(relu(first(x))); }
};

bool has_tag(const MemorySnapshot& snapshot, std::string_view tag) {
  return std::ranges::any_of(snapshot.by_tag,
                             [&](const TagMemory& memory) { return memory.tag == tag; });
}

TEST(TrainingMemory, IsTaggedByModuleAndOp) {
  auto model = nn::make<TwoLayers>();
  record_memory_history(cpu);
  const OpProfile profile;  // listens to the same ranges
  {
    const Tensor x = rand({16, 32});
    optim::AdamW optimizer(model->named_parameters());
    model(x).sum().backward();
    optimizer.step();
    const MemoryTag tag("inputs");
    const Tensor named = rand({4, 4});
  }
  const MemorySnapshot snapshot = memory_snapshot(cpu);
  record_memory_history(cpu, std::nullopt);
  EXPECT_GT(profile.times().size(), 4u);
  for (const char* tag : {"first: linear", "second: linear", "second: linear backward", "relu"})
    EXPECT_TRUE(has_tag(snapshot, tag)) << tag;
  for (const char* scope : {"inputs", "optimizer states"})
    EXPECT_TRUE(std::ranges::any_of(snapshot.by_tag, [&](const TagMemory& memory) {
      return memory.tag.starts_with(scope);
    })) << scope;
  if (::testing::Test::HasFailure())
    for (const TagMemory& memory : snapshot.by_tag) std::cerr << memory.tag << '\n';
}

}  // namespace
}  // namespace lockstep
