#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/parallel/mean_metric.hpp"
#include "parallel/replicas.hpp"

// What one rank does alone is refused on every rank; nothing is averaged that does not belong
// together.

namespace lockstep::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// Runs a body on two ranks, which must fail on each of them. Returns their messages.
std::vector<std::string> messages_of_ranks(const std::function<void(Communicator&)>& body) {
  std::vector<std::string> messages(2);
  try {
    comm::run_ranks(2,
                    [&](Communicator& group) {
                      std::string& message = messages[static_cast<std::size_t>(group.rank())];
                      try {
                        body(group);
                      } catch (const std::exception& error) {
                        message = error.what();
                        throw;
                      }
                    },
                    {.timeout = 10s});
    ADD_FAILURE() << "no rank noticed anything";
  } catch (const std::exception&) {
  }
  return messages;
}

void expect_the_step_to_be_missed(const std::vector<std::string>& messages) {
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("step 3"), HasSubstr("step 4"),
                               HasSubstr("a rank has left out a step")));
}

TEST(OneRankAlone, ThatSkipsABackwardIsRefusedOnEveryRank) {
  for (const bool find_unused : {false, true})
    expect_the_step_to_be_missed(messages_of_ranks([&](Communicator& group) {
      Replica replica(make_net(1), share(group), {.find_unused_parameters = find_unused});
      for (int step = 1; step <= 6; ++step) {
        const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
        const Tensor loss = loss_of(replica(batch.x), batch);
        if (group.rank() == 1 && step == 3) continue;
        loss.backward();
      }
    }));
}

TEST(OneRankAlone, WhoseLossReachesNoParameterIsRefusedOnEveryRank) {
  expect_the_step_to_be_missed(messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group), {.find_unused_parameters = true});
    for (int step = 1; step <= 6; ++step) {
      const Batch batch = Batch::of_step(step);
      const Tensor prediction = replica(batch.x);
      const Tensor other = ones({1}).set_requires_grad();
      const bool misses = group.rank() == 1 && step == 3;
      (misses ? sum(other) : loss_of(prediction, batch)).backward();
    }
  }));
}

TEST(OneRankAlone, ThatReducesAnotherModuleIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica first(make_net(1), share(group)), second(make_net(2), share(group));
    const Batch batch = Batch::of_step(0);
    loss_of(group.rank() == 0 ? first(batch.x) : second(batch.x), batch).backward();
  });
  for (const std::string& message : messages) EXPECT_THAT(message, HasSubstr("disagree"));
}

using Update = std::function<void(optim::AdamW&, int rank, int step)>;

/// Trains with an optimizer; the step of one rank may differ.
void train(Communicator& group, const Update& update) {
  Replica replica(make_net(1), share(group));
  optim::AdamW optimizer(replica.parameters(), {.lr = 0.25});
  for (int step = 1; step <= 4; ++step) {
    const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
    update(optimizer, group.rank(), step);
    optimizer.zero_grad();
  }
}

/// The same, which must fail. Returns the messages of both ranks.
std::vector<std::string> train_with(const Update& update) {
  return messages_of_ranks([&](Communicator& group) { train(group, update); });
}

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

TEST(OneRankAlone, ThatLeavesOutAnUpdateIsRefusedOnEveryRank) {
  const auto messages = train_with([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 0 || step != 2) optimizer.step();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("after update 1"), HasSubstr("after update 2")));
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

/// A module with running statistics.
struct Normed : nn::Module {
  nn::Child<nn::BatchNorm1d> norm{this, "norm", nn::BatchNormLayerOptions{.channels = 2}};
  nn::Child<nn::Linear> out{this, "out", 2, 2};
  Tensor forward(const Tensor& x) { return out(norm(x)); }
};

TEST(OneRankAlone, ThatCallsWrappersInAnotherOrderIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    DistributedDataParallel a(nn::make<Normed>(), share(group)),
        b(nn::make<Normed>(), share(group));
    const Tensor x = tensor({1.0f, 2.0f, 3.0f, 5.0f}).reshape({2, 2});
    if (group.rank() == 0) {
      a(x);
      b(x * 100.0);
    } else {
      b(x * 100.0);
      a(x);
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("'buffers'"), HasSubstr("owner")));
}

/// Ten layers, of which the first two may run in the other order.
struct TenLayers : nn::Module {
  nn::Child<nn::ModuleList<nn::Linear>> layers{this, "layers"};
  bool swapped;
  explicit TenLayers(bool swaps) : swapped(swaps) {
    for (int i = 0; i < 10; ++i)
      layers->append(nn::make<nn::Linear>(nn::LinearOptions{.in = 2, .out = 2, .bias = false}));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (std::size_t i = 0; i < 10; ++i) y = layers[swapped && i < 2 ? 1 - i : i](y) + x;
    return y;
  }
};

// The engine meets the wrappers in the order of the sum's operands.
TEST(OneRankAlone, ThatAddsLossesInAnotherOrderIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    DistributedDataParallel a(nn::make<TenLayers>(false), share(group)),
        b(nn::make<TenLayers>(true), share(group));
    for (int step = 0; step < 3; ++step) {
      const Tensor x = full({1, 2}, 0.5), of_a = mean(a(x)), of_b = mean(b(x));
      (group.rank() == 0 ? of_a + of_b : of_b + of_a).backward();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("order of gradients of replica"));
}

TEST(OneRankAlone, WhoseHookStepsWithinABackwardIsRefused) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    const auto net = make_net(1);
    Replica replica(net, share(group));
    optim::SGD optimizer(replica.parameters(), {.lr = 0.25});
    autograd::leaf_of(net->parameters()[0]).add_hook([&](autograd::LeafNode&) {
      optimizer.step();
    });
    const Batch batch = Batch::of_step(1).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
  });
  EXPECT_THAT(messages[0] + messages[1], HasSubstr("an optimizer's step within a backward"));
}

TEST(OneRankAlone, WhoseBackwardFailedHasNoGradients) {
  const auto net0 = make_net(1), net1 = make_net(1);
  const auto messages = messages_of_ranks([&](Communicator& group) {
    const auto& net = group.rank() == 0 ? net0 : net1;
    Replica replica(net, share(group), {.bucket_bytes = 1, .first_bucket_bytes = 1});
    if (group.rank() == 1)
      autograd::leaf_of(net->parameters()[0]).add_hook([](autograd::LeafNode&) {
        throw std::runtime_error("the hook fails");
      });
    const Batch batch = Batch::of_step(1).part(group.rank(), group.size());
    const Tensor loss = loss_of(replica(batch.x), batch);
    EXPECT_ANY_THROW(loss.backward());
    for (const Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
    replica(batch.x);
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("go on from a checkpoint"));
}

TEST(OneRankAlone, WhoseGuardsEndInAnotherOrderReducesAgain) {
  comm::run_ranks(2,
                  [](Communicator& group) {
                    const auto net = make_net(1);
                    Replica replica(net, share(group));
                    auto first = std::make_unique<Replica::NoSync>(replica.no_sync());
                    const auto second = std::make_unique<Replica::NoSync>(replica.no_sync());
                    first.reset();
                    Replica::NoSync(std::move(*second));
                    const Batch batch = Batch::of_step(1).part(group.rank(), group.size());
                    loss_of(replica(batch.x), batch).backward();
                    const double own = sum(net->parameters()[0].grad()).item();
                    EXPECT_NEAR(comm::all_reduce_scalar(group, own), 2 * own, 1e-12);
                  },
                  {.timeout = 10s});
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

/// Trains to the end, where the ranks must be found to differ. Returns the message.
std::string message_of_the_end(const Update& update) {
  return message_of([&] {
    comm::run_ranks(2, [&](Communicator& group) { train(group, update); }, {.timeout = 10s});
  });
}

TEST(OneRankAlone, WithAnotherLearningRateInTheLastUpdateIsRefused) {
  const std::string message = message_of_the_end([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 1 && step == 4) optimizer.set_lr(0.5);
    optimizer.step();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("rank 0 with '8 parameters after update 4 with lr 0.25"),
                             HasSubstr("rank 1 with '8 parameters after update 4 with lr 0.5")));
}

TEST(OneRankAlone, ThatLeavesOutTheLastUpdateIsRefused) {
  const std::string message = message_of_the_end([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 1 || step < 4) optimizer.step();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("after update 3"), HasSubstr("after update 4")));
}

TEST(OneRankAlone, ThatNeverUpdatesIsRefused) {
  const std::string message = message_of([] {
    comm::run_ranks(2, [](Communicator& group) {
      Replica replica(make_net(1), share(group));
      optim::AdamW optimizer(replica.parameters(), {.lr = 0.25});
      const Batch batch = Batch::of_step(1);
      loss_of(replica(batch.x), batch).backward();
      if (group.rank() == 0) optimizer.step();
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("after update 1"), HasSubstr("no parameter updated")));
}

TEST(OneRankAlone, ThatGivesUpAWrapperInAnExceptionDoesNotCountAsDifferent) {
  comm::run_ranks(2, [](Communicator& group) {
    try {
      train(group, [&](optim::AdamW& optimizer, int rank, int step) {
        if (rank == 1 && step == 4) throw std::runtime_error("enough");
        optimizer.step();
      });
    } catch (const std::runtime_error&) {
    }
    group.barrier().wait();
  });
}

/// A backward fails on rank 1, in a hook that `add_hook` adds; rank 1 catches that and goes on. The
/// other rank must not wait meanwhile.
void expect_to_end_the_others(
    const std::function<void(Replica&, const Tensor& prediction)>& add_hook) {
  std::promise<void> other_failed;
  const auto messages = messages_of_ranks([&](Communicator& group) {
    Replica replica(make_net(1), share(group), {.bucket_bytes = 1, .first_bucket_bytes = 1});
    const Batch batch = Batch::of_step(0);
    const Tensor prediction = replica(batch.x);
    const Tensor loss = loss_of(prediction, batch);
    if (group.rank() == 0) {
      const auto tell = [&](void*) { other_failed.set_value(); };
      const std::unique_ptr<void, decltype(tell)> at_end(&other_failed, tell);
      loss.backward();
    } else {
      add_hook(replica, prediction);
      EXPECT_THROW(loss.backward(), std::runtime_error);
      EXPECT_EQ(other_failed.get_future().wait_for(8s), std::future_status::ready);
      throw std::runtime_error("goes on, and ends");
    }
  });
  EXPECT_THAT(messages[0], AllOf(HasSubstr("rank 1"), HasSubstr("a hook's own error")));
}

TEST(OneRankAlone, WhoseBackwardFailsAmongItsBucketsEndsTheOthersAtOnce) {
  expect_to_end_the_others([](Replica& replica, const Tensor&) {
    autograd::leaf_of(replica.parameters()[2]).add_hook([](autograd::LeafNode&) {
      throw std::runtime_error("a hook's own error");
    });
  });
}

TEST(OneRankAlone, WhoseBackwardFailsBeforeItsFirstGradientEndsTheOthersAtOnce) {
  expect_to_end_the_others([](Replica&, const Tensor& prediction) {
    prediction.register_hook(
        [](const Tensor&) -> Tensor { throw std::runtime_error("a hook's own error"); });
  });
}

TEST(OneRankAlone, WithOtherOptionsIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    const Replica replica(make_net(1), share(group), {.find_unused_parameters = group.rank() == 1});
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("find_unused_parameters is false on rank 0 but true on rank 1"));
}

TEST(OneRankAlone, IsToldThatItsBackwardFailedWhenItGoesOn) {
  comm::run_ranks(1,
                  [](Communicator& group) {
                    Replica replica(make_net(1), share(group));
                    autograd::leaf_of(replica.parameters()[2]).add_hook([](autograd::LeafNode&) {
                      throw std::runtime_error("a hook's own error");
                    });
                    const Batch batch = Batch::of_step(0);
                    const Tensor loss = loss_of(replica(batch.x), batch);
                    EXPECT_THROW(loss.backward(), std::runtime_error);
                    EXPECT_THAT(message_of([&] { replica(batch.x); }),
                                HasSubstr("wrap the model again"));
                  },
                  {.timeout = 10s});
}

TEST(Wrapper, ThatEndedRefusesTheBackwardsOfItsForwardsOnEveryRank) {
  comm::run_ranks(2,
                  [](Communicator& group) {
                    const auto net = make_net(1);
                    auto replica = std::make_unique<Replica>(net, share(group));
                    const Batch batch = Batch::of_step(0);
                    const Tensor loss = loss_of((*replica)(batch.x), batch);
                    replica.reset();
                    EXPECT_THAT(message_of([&] { loss.backward(); }),
                                HasSubstr("DistributedDataParallel that has ended"));
                    for (const Tensor& parameter : net->parameters())
                      EXPECT_FALSE(parameter.grad().defined());
                    loss_of(net->forward(batch.x), batch).backward();  // no wrapper's affair
                    EXPECT_TRUE(net->parameters()[0].grad().defined());
                  },
                  {.timeout = 10s});
}

TEST(Wrapper, ThatEndedLeavesWhatWasToBeAddedUpOnOneRank) {
  comm::run_ranks(1, [](Communicator& group) {
    const auto net = make_net(1);
    const Batch batch = Batch::of_step(0);
    Tensor loss;
    {
      Replica replica(net, share(group));
      const auto local = replica.no_sync();
      loss = loss_of(replica(batch.x), batch);
    }
    loss.backward();
    EXPECT_TRUE(net->parameters()[0].grad().defined());
  });
}

TEST(Wrapper, MayEndInsideTheBackwardThatItReduces) {
  comm::run_ranks(2,
                  [](Communicator& group) {
                    const auto net = make_net(1);
                    auto replica = std::make_unique<Replica>(
                        net, share(group),
                        Replica::Options{.bucket_bytes = 1, .first_bucket_bytes = 1});
                    autograd::leaf_of(net->parameters()[2]).add_hook([&](autograd::LeafNode&) {
                      replica.reset();
                    });
                    const Batch batch = Batch::of_step(0);
                    loss_of((*replica)(batch.x), batch).backward();
                    EXPECT_EQ(replica, nullptr);
                  },
                  {.timeout = 10s});
}

}  // namespace
}  // namespace lockstep::parallel::testing
