// What replicas that train in f16 must do on the ranks of any group.

#include <limits>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/optim.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LossScaleContract);

TEST_P(LossScaleContract, AllRanksSkipAStepInWhichOneFindsAnInf) {
  run([](Communicator& group) {
    manual_seed(1);
    const auto model =
        models::gpt2({.layers = 1, .heads = 2, .channels = 16, .context = 8, .vocabulary = 11});
    model->to(device_of_rank);
    DistributedDataParallel<models::Gpt2> replica(model, share(group));
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 0.01});
    amp::GradScaler scaler;
    const Tensor tokens = (arange(8).reshape({1, 8}) + group.rank()).to(device_of_rank);
    for (int step = 0; step < 4; ++step) {
      const bool skips = step == 2;
      const bool finds_inf = skips && group.rank() == group.size() - 1;
      const amp::Autocast mixed(DType::f16);
      const std::size_t before = hash_of(*model);
      const Tensor loss = cross_entropy(replica(tokens).reshape({8, 11}), tokens.reshape({8}));
      const double spoiled = finds_inf ? std::numeric_limits<double>::infinity() : 1.0;
      scaler.scale(loss * spoiled).backward();
      scaler.unscale_(optimizer);
      optim::clip_grad_norm_(replica.parameters(), 0.5);
      scaler.step(optimizer);
      scaler.update();
      optimizer.zero_grad();
      EXPECT_EQ(hash_of(*model) == before, skips) << "step " << step;
      expect_equal_replicas(group, *model);
    }
    EXPECT_EQ(scaler.get_scale(), 32768);
    for (const auto& [name, value] : optimizer.state_dict())
      if (name.ends_with(".step")) {
        EXPECT_EQ(value.item(), 3) << name;
      }
  });
}

// Nothing is exchanged for it, so that no group is asked for.
TEST_P(LossScaleContract, ShardsAreClippedByTheNormThatUnscalingGave) {
  run([](Communicator& group) {
    for (const int stage : {1, 2, 3}) {
      manual_seed(2);
      const auto net = nn::make<nn::Linear>(8, 8);
      net->to(device_of_rank);
      DistributedDataParallel<nn::Linear> replica(net, share(group), {.zero_stage = stage});
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      amp::GradScaler scaler({.init_scale = 64, .group = replica.shard_group()});
      scaler.scale(replica(ones({2, 8}, {.device = device_of_rank})).sum()).backward();
      const Tensor norm = scaler.unscale_(optimizer);
      optim::clip_grad_norm_(replica.parameters(), 0.5, {.norm = norm});
      const Tensor clipped =
          optim::clip_grad_norm_(replica.parameters(), 100.0, {.group = replica.shard_group()});
      EXPECT_NEAR(clipped.item(), 0.5, 1e-5) << stage;
      scaler.step(optimizer);
      scaler.update();
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
