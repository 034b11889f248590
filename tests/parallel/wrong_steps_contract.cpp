// Steps that would train otherwise than they say, over any group, and are refused.

#include <optional>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/sharded_training.hpp"

namespace lockstep::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void step_locally_on(Replica& replica, const Batch& batch) {
  const auto local = replica.no_sync();
  step_on(replica, batch);
}

void expect_refusal(const std::function<void()>& step) {
  EXPECT_THAT(message_of(step), AllOf(HasSubstr("layers."), HasSubstr("under no_sync()"),
                                      HasSubstr("outside of it")));
}

// Else replicas would become different, or the gradients be left for the next step.
TEST_P(UseContract, RefusesAnUpdateByGradientsThatNoBackwardHasReduced) {
  run([](Communicator& group) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(stage);
      Replica replica = sharded(group, stage), other = sharded(group, stage);
      optim::AdamW optimizer(replica.named_parameters()), reference(other.named_parameters());
      amp::GradScaler scaler({.enabled = false, .group = replica.shard_group()});
      for (int step = 0; step < 2; ++step) {
        for (Replica* each : {&replica, &other}) step_locally_on(*each, own_part(group, step));
        if (group.size() > 1 || stage > 0) {
          expect_refusal([&] { optimizer.step(); });
          expect_refusal([&] { scaler.clip_and_step(optimizer, 1.0); });
        }
        // Nothing has changed: the step goes on.
        for (Replica* each : {&replica, &other}) step_on(*each, own_part(group, step + 5));
        for (optim::Optimizer* each : {&optimizer, &reference}) {
          each->step();
          each->zero_grad();
        }
      }
      const auto whole = replica.whole_parameters(), whole_other = other.whole_parameters();
      expect_close(values_of(replica.module()), values_of(other.module()), 1e-11, 1e-13);
      expect_equal_replicas(group, replica.module());
    }
  });
}

TEST_P(UseContract, RefusesAnUpdateByAScalerOfGradientsThatNoBackwardHasReduced) {
  const auto refuses = [](Communicator& group, Replica& replica, bool is_left_out) {
    optim::AdamW optimizer(replica.named_parameters());
    amp::GradScaler scaler({.group = replica.shard_group()});
    const Batch batch = own_part(group, 0);
    const auto backward = [&] { scaler.scale(loss_of(replica(batch.x), batch)).backward(); };
    {
      const auto local = replica.no_sync();
      backward();
    }
    expect_refusal([&] { scaler.step(optimizer); });
    expect_refusal([&] { scaler.clip_and_step(optimizer, 1.0); });
    if (is_left_out) expect_refusal([&] { scaler.unscale_(optimizer); });
    backward();
    scaler.step(optimizer);
    scaler.update();
    const auto whole = replica.whole_parameters();
    expect_equal_replicas(group, replica.module());
  };
  run([&](Communicator& group) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(stage);
      Replica replica = sharded(group, stage);
      if (group.size() > 1 || stage > 0) refuses(group, replica, stage > 0);
    }
    if (group.size() == 3 || device_of_rank.is_cuda()) return;  // where it is not to be had
    Replica reproducible(
        make_net(7), share(group),
        {.reduction = GradientReduction::reproducible, .micro_batches = 2 * group.size()});
    refuses(group, reproducible, true);
  });
}

// The error says how.
TEST_P(UseContract, UpdatesByAveragesThatAreMadeByHand) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    Replica replica = sharded(group, 0), other = sharded(group, 0);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.5}),
        reference(other.named_parameters(), {.lr = 0.5});
    for (int step = 0; step < 2; ++step) {
      step_locally_on(replica, own_part(group, step));
      step_on(other, own_part(group, step));
      std::vector<Tensor> averages;
      for (const Tensor& parameter : replica.parameters())
        averages.push_back(
            all_reduce_async(parameter.grad().clone(), group, comm::ReduceOp::average()).wait());
      EXPECT_THAT(message_of([&] { optimizer.step(); }),
                  HasSubstr("averages that are made by hand go in behind that, by set_grad()"));
      optimizer.zero_grad();
      std::vector<Tensor> parameters = replica.parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].set_grad(averages[i]);
      for (optim::Optimizer* each : {&optimizer, &reference}) {
        each->step();
        each->zero_grad();
      }
    }
    expect_close(values_of(replica.module()), values_of(other.module()), 1e-11, 1e-13);
    expect_equal_replicas(group, replica.module());
  });
}

// As of an optimizer that steps in backward.
TEST_P(UseContract, RefusesAnUpdateByAHookOfABackwardThatAccumulates) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    Replica replica = sharded(group, 0);
    Tensor first = replica.parameters()[0];
    optim::SGD optimizer({first}, {.lr = 0.5});
    autograd::leaf_of(first).add_hook([&](autograd::LeafNode&) { optimizer.step(); });
    expect_refusal([&] { step_locally_on(replica, own_part(group, 0)); });
  });
}

TEST_P(UseContract, AllowsUpdatesByGradientsOfOnesOwnInTheirPlace) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 0);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.5});
    step_locally_on(replica, own_part(group, 0));
    optimizer.zero_grad();
    optimizer.step();  // of nothing
    for (Tensor& parameter : replica.parameters())
      parameter.set_grad(full(parameter.shape(), 0.25, parameter.options()));
    optimizer.step();
    expect_equal_replicas(group, replica.module());
  });
}

TEST_P(UseContract, UpdatesByWhatOneRankAloneHasAccumulated) {
  run([](Communicator& group) {
    Replica replica(make_net(1), group.split(group.rank(), 0));
    const auto alone = make_net(1);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.5}),
        reference(alone->named_parameters(), {.lr = 0.5});
    step_locally_on(replica, own_part(group, 0));
    loss_of(alone->forward(own_part(group, 0).x), own_part(group, 0)).backward();
    optimizer.step();
    reference.step();
    expect_close(values_of(replica.module()), values_of(*alone), 1e-11, 1e-13);
  });
}

TEST_P(UseContract, UpdatesByGradientsOfARankAloneBetweenAverages) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 0);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.5});
    LocalSGD averaging(replica, optimizer, {.sync_every = 2});
    for (int step = 0; step < 2; ++step) {
      step_locally_on(replica, own_part(group, step));
      optimizer.step();
      optimizer.zero_grad();
    }
    expect_equal_replicas(group, replica.module());
  });
}

// A launch leaves gradients as the step does that it was captured of.
TEST_P(UseContract, RefusesAnUpdateBehindACapturedStepThatOnlyAccumulates) {
  const bool captures = ranks().captures_collectives;
  run([&](Communicator& group) {
    if (group.size() == 1) return;
    Replica replica = sharded(group, 0);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.5});
    StepGraph graph(
        [&](std::span<const Tensor> in) {
          const auto local = replica.no_sync();
          mse_loss(replica(in[0]), in[1]).backward();
          return std::vector<Tensor>{};
        },
        {.num_warmup_iters = 1, .group = share(group)});
    for (int step = 0; step < 5; ++step) {
      const Batch batch = own_part(group, step);
      graph({batch.x, batch.target});
      if (step == 4) {
        EXPECT_EQ(graph.replayed(), captures) << graph.fallback_reason();
      }
      expect_refusal([&] { optimizer.step(); });
      step_on(replica, batch);
      optimizer.step();
      optimizer.zero_grad();
    }
    expect_equal_replicas(group, replica.module());
  });
}

TEST_P(UseContract, SaysWhereALossOfParametersAloneBelongs) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 0);
    step_on(replica, own_part(group, 0));
    Tensor loss = zeros({}, {.dtype = DType::f64, .device = device_of_rank});
    for (const Tensor& parameter : replica.parameters()) loss = loss + parameter.square().sum();
    EXPECT_THAT(message_of([&] { loss.backward(); }),
                AllOf(HasSubstr("call the wrapper"), HasSubstr("parameters alone"),
                      HasSubstr("to the loss of a forward")));
  });
}

TEST_P(ZeroContract, RefusesACommunicationHookByTheNameOfItsOption) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 1), whole = sharded(group, 0);
    EXPECT_THAT(message_of([&] { replica.register_comm_hook(compress_buckets(DType::bf16)); }),
                AllOf(HasSubstr("all-reduce in bf16 does not go with a zero_stage"),
                      HasSubstr("give zero_stage 0, or no hook")));
    EXPECT_THAT(message_of([&] { whole.register_comm_hook(reduce_scatter_buckets()); }),
                HasSubstr("give a zero_stage for that"));
  });
}

// The averages would overwrite its part.
TEST_P(ZeroContract, RefusesALossTermOfTheShards) {
  run([](Communicator& group) {
    for (const int stage : {1, 2, 3}) {
      Replica replica = sharded(group, stage);
      Tensor loss = zeros({}, {.dtype = DType::f64, .device = device_of_rank});
      for (const Tensor& shard : replica.parameters()) loss = loss + shard.square().sum();
      EXPECT_THAT(message_of([&] { loss.backward(); }),
                  AllOf(HasSubstr("shard of parameter layers."), HasSubstr("those of the module"),
                        HasSubstr("weight_decay")));
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
