// One rank's optimizer, scaler, clipping or metric differs.

#include "parallel/one_rank_updates.hpp"

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/parallel/mean_metric.hpp"

namespace lockstep::parallel::testing {
namespace {

TEST(OneRankAlone, WithAnotherLearningRateIsRefusedOnEveryRank) {
  const auto messages = train_with([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 1 && step == 2) optimizer.set_lr(0.5);
    optimizer.step();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message,
                AllOf(HasSubstr("update 2 with lr 0.25"), HasSubstr("update 2 with lr 0.5")));
}

TEST(OneRankAlone, WithAnotherOptionOfItsOptimizerIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    optim::AdamW optimizer(replica.parameters(), {.beta1 = group.rank() == 0 ? 0.5 : 0.75});
    for (int step = 1; step <= 2; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("beta1 0.5"), HasSubstr("beta1 0.75")));
}

/// Trains with an optimizer of two groups. @param weight_decay of the second one.
std::vector<std::string> train_with_groups(
    const std::function<void(optim::AdamW&, int rank)>& update,
    const std::function<double(int rank)>& weight_decay = [](int) { return 0.0; }) {
  return messages_of_ranks([&](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const auto all = replica.named_parameters();
    const optim::AdamWOptions decayed{.lr = 0.25, .weight_decay = 0.5};
    optim::AdamWOptions other = decayed;
    other.weight_decay = weight_decay(group.rank());
    optim::AdamW optimizer(
        optim::AdamW::Groups{{NamedTensors(all.begin(), all.begin() + 4), decayed},
                             {NamedTensors(all.begin() + 4, all.end()), other}});
    for (int step = 1; step <= 2; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      update(optimizer, group.rank());
    }
  });
}

// What its groups have in common is told once, so that labels have room for what differs.
TEST(OneRankAlone, WhoseFirstUpdateOfGroupsDiffersIsToldHow) {
  const auto step = [](optim::AdamW& optimizer, int) {
    optimizer.step();
    optimizer.zero_grad();
  };
  for (const std::string& message :
       train_with_groups(step, [](int rank) { return rank == 0 ? 0.0 : 0.125; }))
    EXPECT_THAT(message,
                AllOf(HasSubstr("weight_decay 0.5/0 "), HasSubstr("weight_decay 0.5/0.125 ")));
  for (const std::string& message : train_with_groups([](optim::AdamW&optimizer, int rank) {
         optimizer.step();
         if (rank == 0) optimizer.zero_grad();
       }))
    EXPECT_THAT(message,
                ContainsRegex("^[^\n]*8 gradients that were not cleared[^\n]*\" on rank 1"));
  for (const std::string& message : train_with_groups([](optim::AdamW&optimizer, int rank) {
         for (int i = 0; i <= rank; ++i) optimizer.step();
         optimizer.zero_grad();
       }))
    EXPECT_THAT(message, ContainsRegex("^[^\n]*8 parameters after update 2[^\n]*\" on rank 1"));
}

TEST(OneRankAlone, ThatLeavesOutAnUpdateIsRefusedOnEveryRank) {
  const auto messages = train_with([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 0 || step != 2) optimizer.step();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("after update 1"), HasSubstr("after update 2")));
}

/// With parameters that are gathered for a forward (zero_stage 3), before gradients tell of it.
TEST(OneRankAlone, ThatLeavesOutAnUpdateOfGatheredParametersIsRefusedByAnEvaluation) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group), {.zero_stage = 3});
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.25});
    const Batch batch = Batch::of_step(0).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
    if (group.rank() == 0) optimizer.step();
    const NoGradGuard no_recording;
    (void)replica(batch.x);
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("after 1 updates"), HasSubstr("after 0 updates")));
}

TEST(OneRankAlone, ThatWritesToGatheredParametersIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group), {.zero_stage = 3});
    {
      const auto whole = replica.whole_parameters();
      if (group.rank() == 0) replica.module().load_state_dict(make_net(2)->state_dict());
    }
    const Batch batch = Batch::of_step(0).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("after 1 updates"), HasSubstr("after 0 updates")));
}

// With fewer micro-batches it reduces where the others go on to add up.
TEST(OneRankAlone, WithFewerForwardsOfGatheredParametersIsToldWhichOneDiffers) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group), {.zero_stage = 3});
    const Batch batch = Batch::of_step(0).part(group.rank(), group.size());
    for (int i = 0; i < 1 + group.rank(); ++i) {
      const auto local = replica.no_sync();
      loss_of(replica(batch.x), batch).backward();
    }
    loss_of(replica(batch.x), batch).backward();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("forward 2 of its step, whose backward reduces"),
                               HasSubstr("forward 2 of its step, under no_sync()")));
}

TEST(OneRankAlone, ThatWritesToItsShardsIsRefusedOnEveryRank) {
  for (const int stage : {1, 2}) {
    const auto messages = messages_of_ranks([&](Communicator& group) {
      Replica replica(make_net(1), share(group), {.zero_stage = stage});
      if (group.rank() == 0) {
        const NoGradGuard no_recording;
        for (Tensor& shard : replica.parameters()) shard.fill_(0.5);
      }
      const Batch batch = Batch::of_step(0).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
    });
    for (const std::string& message : messages)
      EXPECT_THAT(message, AllOf(HasSubstr("all_gather"), HasSubstr("shards were written to"),
                                 HasSubstr("every rank must write to its own")));
  }
}

/// Trains with two optimizers, one for the first four parameters and one for the others.
template <class Update>
std::vector<std::string> train_with_two(Update update) {
  return messages_of_ranks([&](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const auto all = replica.parameters();
    optim::AdamW first(std::vector(all.begin(), all.begin() + 4), {.lr = 0.25});
    optim::AdamW second(std::vector(all.begin() + 4, all.end()), {.lr = 0.125});
    for (int step = 1; step <= 4; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      update(first, second, group.rank(), step);
      first.step();
      second.step();
    }
  });
}

TEST(OneRankAlone, WithAnotherLearningRateInAnyOptimizerIsRefusedOnEveryRank) {
  const auto messages = train_with_two([](auto& first, auto&, int rank, int step) {
    if (rank == 1 && step == 2) first.set_lr(0.5);
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message,
                AllOf(HasSubstr("update 2 with lr 0.25"), HasSubstr("update 2 with lr 0.5")));
}

TEST(OneRankAlone, WhoseOneOptimizerIsLeftOutIsRefusedOnEveryRank) {
  const auto messages = train_with_two([](auto& first, auto&, int rank, int step) {
    if (rank == 1 && step == 2) first.zero_grad();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("update 2 with lr 0.125"));
}

TEST(OneRankAlone, WhoseOptimizerHasFewerParametersIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    auto parameters = replica.named_parameters();
    if (group.rank() == 1) parameters.pop_back();
    optim::AdamW optimizer(parameters, {.lr = 0.25});
    for (int step = 1; step <= 2; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("8 parameters after"), HasSubstr("7 parameters after")));
}

TEST(OneRankAlone, WhichDropsStatesByOptionsThatComeBackIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const optim::SGDOptions heavy{.lr = 0.25, .momentum = 0.9};
    optim::SGD optimizer(replica.named_parameters(), heavy);
    for (int step = 1; step <= 3; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      if (group.rank() == 1 && step == 2) {
        optimizer.set_options({.lr = 0.25});
        optimizer.set_options(heavy);
      }
      optimizer.step();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("update 2, states dropped by 2 changes of options, with lr"));
}

TEST(OneRankAlone, WhichLoadsOtherOptionsLaterIsRefusedOnEveryRank) {
  const auto messages = train_with([](optim::AdamW& optimizer, int rank, int step) {
    if (step == 2) {
      NamedTensors state = optimizer.state_dict();
      for (auto& [name, value] : state)
        if (rank == 1 && name == "groups.0.beta1") value = full({}, 0.5, {.dtype = DType::f64});
      optimizer.load_state_dict(state);
    }
    optimizer.step();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message,
                ContainsRegex("update 2 from state #[0-9]+ loaded after update 1 with lr 0.25, "
                              "AdamW \\(options #"));
}

TEST(OneRankAlone, WhichLoadsAnOptimizersStateIsRefusedOnEveryRank) {
  const auto messages = train_with([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 0 && step == 2) optimizer.load_state_dict(optimizer.state_dict());
    optimizer.step();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(ContainsRegex("update 2 from state #[0-9]+ loaded after update 1"),
                               HasSubstr("update 2 with lr 0.25")));
}

TEST(OneRankAlone, WhichLoadsTheOthersStateTwiceIsOneOfThem) {
  const Update load_and_step = [](optim::AdamW& optimizer, int rank, int step) {
    const NamedTensors state = optimizer.state_dict();
    for (int loads = 0; step == 2 && loads < 2 - rank; ++loads) optimizer.load_state_dict(state);
    optimizer.step();
  };
  comm::run_ranks(2, [&](Communicator& group) { train(group, load_and_step); }, {.timeout = 10s});
}

TEST(OneRankAlone, WhichLoadsAnotherStateIsRefusedOnEveryRank) {
  const auto messages = train_with([](optim::AdamW& optimizer, int rank, int step) {
    if (step == 2) {
      NamedTensors state = optimizer.state_dict();
      for (auto& [name, value] : state)
        if (rank == 1 && name.ends_with("exp_avg")) value = value * 2.0;
      optimizer.load_state_dict(state);
    }
    optimizer.step();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, ContainsRegex("update 2 from state #[0-9]+ loaded after update 1"));
}

TEST(OneRankAlone, WhichLoadsTheStateOfAllAgainIsRefusedOnEveryRank) {
  NamedTensors saved[2];
  const auto messages = train_with([&](optim::AdamW& optimizer, int rank, int step) {
    if (step == 1)
      for (const auto& [name, value] : optimizer.state_dict())
        saved[rank].emplace_back(name, value.clone());
    if (step == 1 || (step == 3 && rank == 0)) optimizer.load_state_dict(saved[rank]);
    optimizer.step();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message,
                AllOf(HasSubstr("loaded after update 0"), HasSubstr("loaded after update 2")));
}

/// Trains the parameters that `make` gives an optimizer, a rank its own.
std::vector<std::string> train_by(
    const std::function<std::unique_ptr<optim::Optimizer>(const NamedTensors&, int rank)>& make) {
  return messages_of_ranks([&](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const auto optimizer = make(replica.named_parameters(), group.rank());
    for (int step = 1; step <= 2; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      optimizer->step();
    }
  });
}

TEST(OneRankAlone, WithAnotherKindOfOptimizerIsRefusedOnEveryRank) {
  const auto messages = train_by([](const NamedTensors& parameters, int rank) {
    std::unique_ptr<optim::Optimizer> optimizer;
    if (rank == 0)
      optimizer = std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 0.25});
    else
      optimizer = std::make_unique<optim::AdamW>(
          parameters, optim::AdamWOptions{.lr = 0.25, .weight_decay = 0});
    return optimizer;
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("lr 0.25, Adam "), HasSubstr("lr 0.25, AdamW ")));
}

TEST(OneRankAlone, WhoseGroupsBeginAtAnotherParameterIsRefusedOnEveryRank) {
  const auto messages = train_by([](const NamedTensors& parameters, int rank) {
    const auto border = parameters.begin() + 2 + rank;
    return std::make_unique<optim::SGD>(
        optim::SGD::Groups{{NamedTensors(parameters.begin(), border), {.lr = 0.25}},
                           {NamedTensors(border, parameters.end()), {.lr = 0.5}}});
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("for 2 and 6"), HasSubstr("for 3 and 5")));
}

/// Gradients of parameters that each rank has for itself.
struct OwnGradients {
  std::vector<Tensor> parameters{ones({4}).set_requires_grad()};
  OwnGradients() { parameters[0].set_grad(ones({4})); }
};

TEST(OneRankAlone, ThatClipsToAnotherNormIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    const OwnGradients own;
    optim::clip_grad_norm_(own.parameters, group.rank() == 0 ? 0.3 : 0.3000001,
                           {.group = share(group)});
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("clip_grad_norm_ to 0.3000001"));
}

TEST(OneRankAlone, ThatTakesTheScaleOffIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    const OwnGradients own;
    optim::SGD optimizer(own.parameters, {.lr = 0.25});
    amp::GradScaler scaler({.group = share(group)});
    scaler.scale(ones({}));
    if (group.rank() == 0) scaler.unscale_(optimizer);
    scaler.step(optimizer);
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("GradScaler::unscale_"), HasSubstr("GradScaler::step")));
}

TEST(OneRankAlone, ThatScalesNoLossOrLoadsAnotherScalerIsRefusedOnEveryRank) {
  for (const bool loads : {false, true}) {
    const auto messages = messages_of_ranks([&](Communicator& group) {
      Replica replica(make_net(1), share(group));
      optim::SGD optimizer(replica.parameters(), {.lr = 0.25});
      amp::GradScaler scaler;
      NamedTensors state = scaler.state_dict();
      for (auto& [name, value] : state)
        if (name == "growth_tracker" && group.rank() == 1) value = value + 2;
      if (loads) scaler.load_state_dict(state);
      for (int step = 1; step <= 3; ++step) {
        const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
        const Tensor loss = loss_of(replica(batch.x), batch);
        (loads || group.rank() == 0 || step != 2 ? scaler.scale(loss) : loss).backward();
        scaler.step(optimizer);
        scaler.update();
      }
    });
    const char* const difference = loads ? "with 2 steps made and 0 skipped" : "no loss scaled";
    EXPECT_THAT(messages[0] + messages[1], HasSubstr(difference));
  }
}

TEST(OneRankAlone, ThatReadsMetricsInAnotherOrderIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    MeanMetric loss(cpu, "loss"), accuracy(cpu, "accuracy");
    loss.add(ones({}), 1);
    accuracy.add(ones({}), 2);
    (group.rank() == 0 ? loss : accuracy).value(group);
    (group.rank() == 0 ? accuracy : loss).value(group);
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("MeanMetric loss"), HasSubstr("MeanMetric accuracy")));
}

static_assert(!std::is_move_constructible_v<Replica>);
static_assert(!std::is_copy_constructible_v<MeanMetric>);
static_assert(!std::is_move_constructible_v<optim::WeightAverage>);

TEST(OneRankAlone, IsToldWhichRatesDifferHoweverItsGroupsInterleave) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    const auto net = nn::make<nn::Sequential>();
    for (int layer = 0; layer < 30; ++layer) net->append(nn::make<nn::Linear>(2, 2));
    DistributedDataParallel replica(net, share(group));
    NamedTensors weights, biases;
    for (const auto& [name, parameter] : replica.named_parameters())
      (name.ends_with("weight") ? weights : biases).emplace_back(name, parameter);
    optim::SGD optimizer(
        {{weights, {.lr = 0.25}}, {biases, {.lr = group.rank() == 0 ? 0.25 : 0.5}}});
    for (int step = 1; step <= 2; ++step) {
      sum(replica(ones({2, 2}))).backward();
      optimizer.step();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("lr 0.25 lr 0.25"), HasSubstr("lr 0.25 lr 0.5")));
}

TEST(OneRankAlone, WithAnotherRoundingOfItsParametersIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    optim::AdamW optimizer(replica.parameters(),
                           {.master_weights = false, .stochastic_rounding = group.rank() == 1});
    for (int step = 1; step <= 2; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("with lr 0.001 rounded stochastically"));
}

}  // namespace
}  // namespace lockstep::parallel::testing
