// Graphs that promise to use the same parameters in each step, over any group.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/checkpoint.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StaticGraphContract);

constexpr DistributedDataParallelOptions static_graph{
    .bucket_bytes = 1, .first_bucket_bytes = 1, .static_graph = true};

// Layer 1 is left out by rank 0, layer 2 by all.
std::vector<std::size_t> left_out_by(int rank) {
  return rank == 0 ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{2};
}

// The mean of the losses of all ranks' parts of a batch, in one process.
Tensor loss_of_all(Net& net, const Batch& batch, int ranks) {
  Tensor total = zeros({}, {.dtype = DType::f64, .device = device_of_rank});
  for (int rank = 0; rank < ranks; ++rank) {
    const Batch part = batch.part(rank, ranks);
    total = total + loss_of(net.forward(part.x, left_out_by(rank)), part);
  }
  return total / ranks;
}

TEST_P(StaticGraphContract, LeavesOutInEachStepWhatTheFirstDid) {
  run([](Communicator& group) {
    for (const bool clears : {true, false}) {
      Replica replica(make_net(1), share(group), static_graph);
      std::vector<double> expected;
      for (int step = 0; step < 4; ++step) {
        const auto alone = make_net(1);
        loss_of_all(*alone, Batch::of_step(step), group.size()).backward();
        if (clears) replica.module().zero_grad();
        const Batch own = Batch::of_step(step).part(group.rank(), group.size());
        loss_of(replica(own.x, left_out_by(group.rank())), own).backward();
        const std::vector<double> gradients = gradients_of(*alone);
        if (clears || expected.empty()) expected.assign(gradients.size(), 0);
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += gradients[i];
        expect_close(gradients_of(replica.module()), expected, 1e-11, 1e-13);
        for (std::size_t i = 0; i < 8; ++i)
          EXPECT_EQ(replica.parameters()[i].grad().defined(),
                    alone->parameters()[i].grad().defined())
              << "step " << step << ", parameter " << i;
        EXPECT_TRUE(replica.reducer().rebuilt());
      }
    }
  });
}

// Its first layer runs twice, once computed again in backward; its second one does not run.
struct RepeatingNet : nn::Module {
  nn::Child<nn::Linear> repeated{this, "repeated", 6, 6, TensorOptions{.dtype = DType::f64}};
  nn::Child<nn::Linear> idle{this, "idle", 6, 6, TensorOptions{.dtype = DType::f64}};
  nn::Child<nn::Linear> output{this, "output", 6, 3, TensorOptions{.dtype = DType::f64}};
  Tensor forward(const Tensor& x) {
    const auto layer = [this](const Tensor& t) { return tanh(repeated(t)); };
    return output(nn::checkpoint(layer, layer(x)));
  }
};

TEST_P(StaticGraphContract, TakesLayersThatRunTwiceAndAreComputedAgain) {
  run([](Communicator& group) {
    const auto make = [] {
      auto net = nn::make<RepeatingNet>();
      fill(*net, 5);
      net->to(device_of_rank);
      return net;
    };
    const auto alone = make();
    DistributedDataParallel<RepeatingNet> replica(make(), share(group), static_graph);
    optim::SGD one(alone->parameters(), {.lr = 0.1}), all(replica.parameters(), {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      const Batch whole = Batch::of_step(step), own = whole.part(group.rank(), group.size());
      loss_of(alone->forward(whole.x), whole).backward();
      loss_of(replica(own.x), own).backward();
      one.step();
      all.step();
      one.zero_grad();
      all.zero_grad();
    }
    expect_close(values_of(replica.module()), values_of(*alone), 1e-11, 1e-13);
    expect_equal_replicas(group, replica.module());
  });
}

// What only a micro-batch that accumulates uses is used.
TEST_P(StaticGraphContract, CountsWhatMicroBatchesUse) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group), static_graph);
    for (int step = 0; step < 3; ++step) {
      const auto alone = make_net(1);
      replica.module().zero_grad();
      const Batch whole = Batch::of_step(step), own = whole.part(group.rank(), group.size());
      for (const bool reduces : {false, true}) {
        std::optional<Replica::NoSync> local;
        if (!reduces) local.emplace(replica.no_sync());
        const std::vector<std::size_t> skipped{reduces ? std::size_t{1} : std::size_t{2}};
        loss_of(replica(own.x, skipped), own).backward();
        loss_of(alone->forward(whole.x, skipped), whole).backward();
      }
      expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
    }
  });
}

TEST_P(StaticGraphContract, BeginsWithTheFirstStepThatHasData) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    Replica replica(make_net(1), share(group), static_graph);
    EXPECT_FALSE(replica.backward_without_data());
    const bool is_first = group.rank() == 0;
    for (int step = 0; step < 4; ++step) {
      const bool has_data = step != (is_first ? 0 : 2);
      const auto alone = make_net(1);
      const Batch batch = Batch::of_step(step);
      loss_of(alone->forward(batch.x, {2}), batch).backward();
      replica.module().zero_grad();
      if (has_data)
        replica.backward(loss_of(replica(batch.x, std::vector<std::size_t>{2}), batch), 1.0);
      else
        EXPECT_TRUE(replica.backward_without_data());
      expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
      EXPECT_FALSE(replica.module().layers[2]->weight.grad().defined());
    }
  });
}

// In its very first step the last rank's data ends behind a micro-batch, which alone uses layer 1.
TEST_P(StaticGraphContract, CountsWhatARankUsedBeforeItsDataEnded) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    for (const int zero_stage : {0, 1, 2}) {
      DistributedDataParallelOptions options = static_graph;
      options.zero_stage = zero_stage;
      const auto net = make_net(1), alone = make_net(1);
      Replica replica(net, share(group), options);
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      optim::SGD optimizer_alone(alone->named_parameters(), {.lr = 0.1});
      const bool ends = group.rank() == group.size() - 1;
      const Batch batch = Batch::of_step(0);
      const std::vector<std::size_t> skips{1, 2}, uses{2};
      const auto loss = [&](auto& model, const auto& skipped) {
        return loss_of(model(batch.x, skipped), batch);
      };
      {
        const auto local = replica.no_sync();
        replica.backward(loss(replica, ends ? uses : skips), 1);
      }
      if (ends)
        EXPECT_TRUE(replica.backward_without_data());
      else
        replica.backward(loss(replica, skips), 1);
      optimizer.step();
      const double others = 2.0 * (group.size() - 1);
      ((loss(alone, uses) + loss(alone, skips) * others) / (1 + others)).backward();
      optimizer_alone.step();
      expect_close(values_of(*net), values_of(*alone), 1e-11, 1e-13);
    }
  });
}

TEST_P(StaticGraphContract, LetsAStepWithUnusedParametersBeCaptured) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const auto train = [&](bool captures) {
      Replica replica(make_net(1), group, static_graph);
      optim::SGD optimizer(replica.parameters(), {.lr = 0.1});
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        const Tensor loss = mse_loss(replica(in[0], left_out_by(group->rank())), in[1]);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss.detach()};
      };
      StepGraph graph(step, {.group = group});
      int replays = 0;
      for (int i = 0; i < 6; ++i) {
        const Batch own = Batch::of_step(i).part(group->rank(), group->size());
        const std::vector<Tensor> in{own.x, own.target};
        captures ? graph(in) : step(in);
        replays += graph.replayed();
      }
      EXPECT_EQ(graph.fallback_reason(), "");
      EXPECT_EQ(replays > 0, captures);
      return values_of(replica.module());
    };
    EXPECT_EQ(train(true), train(false));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
