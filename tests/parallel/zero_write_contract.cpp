// What programs write by hand to parameters that ranks share out, and to their shards, over any
// group.

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/optim/optim.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/sharded_training.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ZeroWriteContract);

// Of each parameter, and all of them together.
constexpr std::size_t bucket_sizes[] = {1, std::size_t{25} << 20};

std::vector<double> evaluated(Replica& replica, const Batch& batch) {
  const NoGradGuard no_recording;
  return replica(batch.x).to_vector<double>();
}

TEST_P(ZeroWriteContract, UsesWhatWasWrittenToTheShardsOfAllRanks) {
  run([](Communicator& group) {
    for (const int stage : {1, 2, 3})
      for (const std::size_t bucket : bucket_sizes) {
        Replica replica = sharded(group, stage, bucket), other = sharded(group, 0);
        const Batch batch = own_part(group, 0);
        // Which leaves the last layers of stage 3 there.
        const Tensor pending = loss_of(replica(batch.x), batch);
        for (const Tensor& shard : replica.parameters()) set_all(shard, 0.25);
        for (const Tensor& parameter : other.parameters()) set_all(parameter, 0.25);
        EXPECT_EQ(evaluated(replica, batch), evaluated(other, batch)) << "stage " << stage;
        for (const Tensor& shard : replica.parameters()) set_all(shard, 0.5);
        for (const Tensor& parameter : other.parameters()) set_all(parameter, 0.5);
        const auto whole = replica.whole_parameters();
        EXPECT_EQ(values_of(replica.module()), values_of(other.module())) << "stage " << stage;
      }
  });
}

// Others in the bucket go on as if each parameter had an array of its own.
TEST_P(ZeroWriteContract, LetsBackwardsGoOnThatDoNotReadWhatWasWritten) {
  run([](Communicator& group) {
    const auto train = [&](int stage, bool writes) {
      Replica replica = sharded(group, stage, std::size_t{25} << 20);
      const Batch batch = own_part(group, 0);
      const Tensor loss = loss_of(replica(batch.x), batch);
      const auto& layers = *replica.module().layers;
      const Tensor before = layers[0]->bias.detach().clone();
      if (writes) set_all(layers[0]->bias, 7.0);  // which no backward reads
      loss.backward();
      if (writes) {
        const NoGradGuard no_recording;
        layers[0]->bias.copy_(before);
      }
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      optimizer.step();
      return values_of(replica.module());
    };
    for (const int stage : {0, 1, 2}) EXPECT_EQ(train(stage, true), train(stage, false));
  });
}

// Master copies follow what is written to the parameters and to the shards.
TEST_P(ZeroWriteContract, TakesWhatIsWrittenIntoMasterCopies) {
  run([](Communicator& group) {
    const auto train = [&](int stage, bool writes_to_shards) {
      Replica replica = sharded(group, stage, 1 << 8, DType::bf16);
      optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
      for (int step = 0; step < 4; ++step) {
        step_on(replica, own_part(group, step, DType::bf16));
        optimizer.step();
        optimizer.zero_grad();
        if (step != 1) continue;
        for (const Tensor& each :
             writes_to_shards ? replica.parameters() : replica.module().parameters())
          set_all(each, 0.125);
      }
      return values_of(replica.module());
    };
    for (const int stage : {1, 2})
      for (const bool to_shards : {false, true})
        expect_close(train(stage, to_shards), train(0, false), 1e-2, 1e-2);
  });
}

// Written to within the step, and between two of them.
TEST_P(ZeroWriteContract, UsesWhatWasWrittenToShardsInCapturedStepsToo) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const auto train = [&](int stage, bool captures) {
      Replica replica = sharded(*group, stage, 1 << 8);
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        const Tensor loss = mse_loss(replica(in[0]), in[1]);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        const NoGradGuard no_recording;
        for (const Tensor& shard : replica.parameters()) Tensor(shard).mul_(0.75);
        return std::vector{loss.detach()};
      };
      StepGraph graph(step, {.group = group});
      std::vector<double> losses;
      for (int i = 0; i < 9; ++i) {
        const Batch own = own_part(*group, i);
        const std::vector<Tensor> in{own.x, own.target};
        if (i == 7)
          for (const Tensor& shard : replica.parameters()) set_all(shard, 0.25);
        losses.push_back((captures ? graph(in) : step(in))[0].item());
      }
      EXPECT_EQ(graph.replayed(), captures && ranks().captures_collectives)
          << graph.fallback_reason();
      return losses;
    };
    const auto whole = train(0, false);
    for (const int stage : {1, 2}) {
      const auto shared = train(stage, false);
      EXPECT_EQ(train(stage, true), shared);
      expect_close(shared, whole, 1e-9, 1e-11);
    }
  });
}

// As where they are whole anyway.
TEST_P(ZeroWriteContract, HasTheTrainedWeightsWhereAveragesOutliveTheWholeParameters) {
  run([](Communicator& group) {
    const auto train = [&](int stage) {
      Replica replica = sharded(group, stage, 1);
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      optim::WeightAverage average(replica.module().named_parameters(), {.decay = 0.5});
      for (int step = 0; step < 4; ++step) {
        const Batch batch = own_part(group, step);
        loss_of(replica(batch.x), batch).backward();
        optimizer.step();
        optimizer.zero_grad();
        std::optional<optim::WeightAverage::Swapped> averaged;
        {
          const auto whole = replica.whole_parameters();
          average.update();
          set_all(replica.module().layers[1]->bias, 0.25 * step);
          averaged.emplace(average.swap_in());
        }
        if (step == 1) average.swap_out();
        if (step == 2 && stage == 3) {
          const auto whole = replica.whole_parameters();  // they are not in these
          averaged.reset();
        }
      }
      const auto whole = replica.whole_parameters();
      return values_of(replica.module());
    };
    EXPECT_EQ(train(3), train(1));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
