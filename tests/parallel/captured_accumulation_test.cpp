#include <array>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/comm/thread_world.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/replicas.hpp"

// Gradients of which a captured step makes a part, and backwards outside of it another.

namespace lockstep::parallel::testing {
namespace {

using In = std::span<const Tensor>;

/// The last of two micro-batches is a step; the first one is made outside of it, from step 6 on.
std::vector<double> train_with_weights_outside(bool captures) {
  std::vector<double> values_of_first;
  comm::run_ranks(2, [&](Communicator& world) {
    DistributedDataParallel<Net> replica(make_net(1), share(world));
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.05});
    const auto add = [&](const Tensor& x, double weight) {
      replica.backward(replica(x).square().mean(), full({}, weight));
    };
    const StepGraph::Step step = [&](In in) {
      add(in[0], 2.0 + world.rank());
      optimizer.step();
      optimizer.zero_grad(false);
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.group = share(world)});
    for (int i = 0; i < 12; ++i) {
      if (i >= 6) {
        const auto local = replica.no_sync();
        add(values({3, 6}, 10 * i + world.rank()), 5.0 - world.rank());
      }
      const Tensor x = values({3, 6}, 100 + 10 * i + world.rank());
      captures ? graph({x}) : step(std::array{x});
    }
    if (world.rank() == 0) values_of_first = values_of(replica.module());
  });
  return values_of_first;
}

TEST(CapturedAccumulation, CountsWeightsOfBackwardsThatBeganOutsideOnlyLater) {
  EXPECT_EQ(train_with_weights_outside(true), train_with_weights_outside(false));
}

/// A step that only accumulates, and a backward behind it that reduces.
std::vector<double> train_behind_an_accumulation(bool captures, int zero_stage) {
  std::vector<double> values_of_first;
  comm::run_ranks(2, [&](Communicator& world) {
    DistributedDataParallel<Net> replica(make_net(1), share(world), {.zero_stage = zero_stage});
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.05});
    const StepGraph::Step step = [&](In in) {
      optimizer.zero_grad();
      const auto local = replica.no_sync();
      replica(in[0]).square().mean().backward();
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.group = share(world)});
    for (int i = 0; i < 8; ++i) {
      const Tensor x = values({3, 6}, 10 * i + world.rank());
      captures ? graph({x}) : step(std::array{x});
      replica(values({3, 6}, 5)).mean().backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    if (captures) {
      EXPECT_EQ(graph.replayed(), zero_stage < 2) << graph.fallback_reason();
    }
    const auto whole = replica.whole_parameters();
    if (world.rank() == 0) values_of_first = values_of(replica.module());
  });
  return values_of_first;
}

TEST(CapturedAccumulation, GoesOnInABackwardThatReduces) {
  for (const int zero_stage : {0, 1, 2})
    EXPECT_EQ(train_behind_an_accumulation(true, zero_stage),
              train_behind_an_accumulation(false, zero_stage))
        << zero_stage;
}

}  // namespace
}  // namespace lockstep::parallel::testing
