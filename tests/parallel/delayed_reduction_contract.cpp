// Gradients that are applied one step late, over any group.

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/delayed_reduction.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DelayedReductionContract);

TEST_P(DelayedReductionContract, LeavesTheAveragesOfTheBackwardBefore) {
  run([](Communicator& group) {
    Replica late(make_net(7), share(group),
                 {.bucket_bytes = 1 << 10, .first_bucket_bytes = 1 << 8}),
        plain(make_net(7), share(group));
    late.register_comm_hook(std::make_shared<DelayedReduction>());
    std::vector<double> before(gradients_of(plain.module()).size());
    for (int step = 0; step < 6; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      for (Replica* replica : {&late, &plain}) {
        replica->module().zero_grad();
        // Micro-batches, of which the last one reduces, and weights.
        if (step % 2 == 0) {
          const auto local = replica->no_sync();
          replica->backward(loss_of((*replica)(batch.x), batch), 1.0 + group.rank());
        }
        replica->backward(loss_of((*replica)(batch.x), batch), 1.0);
      }
      expect_close(gradients_of(late.module()), before, 1e-10, 1e-12);
      before = gradients_of(plain.module());
      EXPECT_TRUE(late.reducer().rebuilt());
    }
  });
}

TEST_P(DelayedReductionContract, ResumesToTheSameBits) {
  run([](Communicator& group) {
    const auto train = [&](bool resumes) {
      auto hook = std::make_shared<DelayedReduction>();
      auto replica = std::make_unique<Replica>(make_net(7, DType::bf16), share(group));
      replica->register_comm_hook(hook);
      auto optimizer = std::make_unique<optim::AdamW>(replica->named_parameters(),
                                                      optim::AdamWOptions{.lr = 1e-2});
      for (int step = 0; step < 8; ++step) {
        if (step == 4 && resumes) {
          const NamedTensors late = hook->state_dict(), states = optimizer->state_dict(),
                             model = replica->module().state_dict();
          auto next = std::make_unique<Replica>(make_net(9, DType::bf16), share(group));
          next->module().load_state_dict(model);
          auto other = std::make_unique<optim::AdamW>(next->named_parameters());
          other->load_state_dict(states);
          hook = std::make_shared<DelayedReduction>();
          hook->load_state_dict(late);
          next->register_comm_hook(hook);
          optimizer = std::move(other);
          replica = std::move(next);
        }
        const Batch batch = Batch::of_step(step, DType::bf16).part(group.rank(), group.size());
        loss_of((*replica)(batch.x), batch).backward();
        optimizer->step();
        optimizer->zero_grad();
        expect_equal_replicas(group, replica->module());
      }
      return values_of(replica->module());
    };
    EXPECT_EQ(train(true), train(false));
  });
}

// What had the inf, and what was scaled before anybody knew.
TEST_P(DelayedReductionContract, SkipsOnAllRanksWhatOneRankOverflowed) {
  run([](Communicator& group) {
    Replica replica(make_net(7, DType::f32), share(group));
    replica.register_comm_hook(std::make_shared<DelayedReduction>());
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
    amp::GradScaler scaler({.init_scale = 1024});
    for (int step = 0; step < 6; ++step) {
      Batch batch = Batch::of_step(step, DType::f32).part(group.rank(), group.size());
      if (step == 2 && group.rank() == group.size() - 1)
        batch.x = batch.x * std::numeric_limits<double>::infinity();
      const std::size_t before = hash_of(replica.module());
      scaler.scale(loss_of(replica(batch.x), batch)).backward();
      scaler.step(optimizer);
      scaler.update();
      optimizer.zero_grad();
      EXPECT_EQ(hash_of(replica.module()) == before, step == 3) << step;
      expect_equal_replicas(group, replica.module());
    }
    EXPECT_EQ(scaler.get_scale(), 512);
  });
}

TEST_P(DelayedReductionContract, RefusesWhatItCannotDo) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const auto hook = std::make_shared<DelayedReduction>();
    Replica replica(make_net(7), group);
    hook->load_state_dict({{"layers.0.weight", ones({2}, {.dtype = DType::f64})}});
    EXPECT_THAT(message_of([&] {
                  hook->load_state_dict({{"step", tensor(std::int64_t{1})}});
                }),
                ::testing::HasSubstr("averages of gradients are floating"));
    Replica unused(make_net(7), group, {.find_unused_parameters = true});
    EXPECT_THAT(
        message_of([&] { unused.register_comm_hook(std::make_shared<DelayedReduction>()); }),
        ::testing::HasSubstr("no part in the next step"));
    Replica sharded(make_net(7), group, {.zero_stage = 1});
    EXPECT_THAT(
        message_of([&] { sharded.register_comm_hook(std::make_shared<DelayedReduction>()); }),
        ::testing::HasSubstr("does not go with a zero_stage"));
  });
}

// What the backward before left would be sent as this rank's own.
TEST_P(DelayedReductionContract, RefusesASecondBackwardOfAStep) {
  run([](Communicator& group) {
    Replica replica(make_net(7), share(group));
    replica.register_comm_hook(std::make_shared<DelayedReduction>());
    const Batch batch = Batch::of_step(0);
    const auto backward = [&] { loss_of(replica(batch.x), batch).backward(); };
    backward();
    EXPECT_THAT(message_of(backward), ::testing::HasSubstr("gradients that were not cleared"));
    replica.module().zero_grad();
    {
      const auto local = replica.no_sync();
      backward();
    }
    backward();
    replica.module().zero_grad(false);
    backward();
  });
}

TEST_P(DelayedReductionContract, LetsCapturedStepsRunEagerly) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    Replica replica(make_net(7), group);
    replica.register_comm_hook(std::make_shared<DelayedReduction>());
    StepGraph graph(
        [&](std::span<const Tensor> in) {
          const Tensor loss = mse_loss(replica(in[0]), in[1]);
          loss.backward();
          replica.module().zero_grad();
          return std::vector{loss.detach()};
        },
        {.group = group});
    const Batch batch = Batch::of_step(0);
    for (int i = 0; i < 5; ++i) graph({batch.x, batch.target});
    EXPECT_THAT(graph.fallback_reason(), ::testing::HasSubstr("DelayedReduction"));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
