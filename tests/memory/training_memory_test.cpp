#include <algorithm>
#include <iostream>
#include <optional>
#include <string_view>

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
  {
    const Tensor x = rand({16, 32});
    model(x).sum().backward();
    const MemoryTag tag("inputs");
    const Tensor named = rand({4, 4});
  }
  const MemorySnapshot snapshot = memory_snapshot(cpu);
  record_memory_history(cpu, std::nullopt);
  for (const char* tag : {"first: linear", "second: linear", "second: linear backward", "relu"})
    EXPECT_TRUE(has_tag(snapshot, tag)) << tag;
  EXPECT_TRUE(std::ranges::any_of(
      snapshot.by_tag, [](const TagMemory& memory) { return memory.tag.starts_with("inputs"); }));
  if (testing::Test::HasFailure())
    for (const TagMemory& memory : snapshot.by_tag) std::cerr << memory.tag << '\n';
}

}  // namespace
}  // namespace lockstep
