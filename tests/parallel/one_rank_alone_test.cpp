// One rank's forwards and backwards differ.

#include "parallel/one_rank_alone.hpp"

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/collectives.hpp"

namespace lockstep::parallel::testing {
namespace {

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

// Rank 1's first backward that reduces leaves layer 1 out; its third one does otherwise.
TEST(OneRankAlone, WhoseStaticGraphChangesIsRefusedOnEveryRank) {
  enum class Change : unsigned char { uses_more, uses_less, accumulates_more };
  for (const Change change : {Change::uses_more, Change::uses_less, Change::accumulates_more}) {
    const auto messages = messages_of_ranks([&](Communicator& group) {
      Replica replica(make_net(1), share(group), {.bucket_bytes = 1, .static_graph = true});
      using Layers = std::vector<std::size_t>;
      for (int step = 1; step <= 6; ++step) {
        const Batch batch = Batch::of_step(step);
        const bool is_odd = group.rank() == 1 && step == 3;
        Layers skipped{1};
        if (is_odd && change == Change::uses_more) skipped = {};
        if (is_odd && change == Change::uses_less) skipped = {1, 2};
        if (is_odd && change == Change::accumulates_more) {
          const auto local = replica.no_sync();
          loss_of(replica(batch.x), batch).backward();
        }
        loss_of(replica(batch.x, skipped), batch).backward();
        replica.module().zero_grad();
      }
    });
    const std::string layer = change == Change::uses_less ? "layers.2." : "layers.1.";
    for (const std::string& message : messages)
      EXPECT_THAT(message, AllOf(HasSubstr("rank 1"), HasSubstr(layer), HasSubstr("static_graph"),
                                 HasSubstr("find_unused_parameters allows changes")));
  }
}

// Of shards: the others gather what this rank has not updated, or updates otherwise.
TEST(OneRankAlone, WhoseUpdateOfShardsDiffersIsRefusedOnEveryRank) {
  enum class Difference : unsigned char { skips, repeats, is_faster, keeps_gradients, throws };
  for (const Difference difference : {Difference::skips, Difference::repeats, Difference::is_faster,
                                      Difference::keeps_gradients, Difference::throws}) {
    const auto messages = messages_of_ranks([&](Communicator& group) {
      Replica replica(make_net(1), share(group), {.bucket_bytes = 1, .zero_stage = 2});
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      for (int step = 1; step <= 5; ++step) {
        const Batch batch = Batch::of_step(step);
        const bool is_odd = group.rank() == 1 && step == 3;
        const auto is = [&](Difference one) { return is_odd && difference == one; };
        loss_of(replica(batch.x), batch).backward();
        if (is(Difference::throws)) throw std::runtime_error("no step today");
        if (is(Difference::is_faster)) optimizer.set_lr(0.2);
        if (!is(Difference::skips)) optimizer.step();
        if (is(Difference::repeats)) optimizer.step();
        if (!is(Difference::keeps_gradients)) optimizer.zero_grad();
      }
    });
    for (const std::string& message : messages)
      EXPECT_THAT(message, Not(IsEmpty())) << static_cast<int>(difference);
    const char* const words[] = {"updated parameters of bucket 0", "updated parameters of bucket 0",
                                 "with lr 0.1", "was not cleared", "no step today"};
    EXPECT_THAT(messages[0], HasSubstr(words[static_cast<int>(difference)]));
  }
}

TEST(OneRankAlone, ThatReducesAnotherModuleIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica first(make_net(1), share(group)), second(make_net(2), share(group));
    const Batch batch = Batch::of_step(0);
    loss_of(group.rank() == 0 ? first(batch.x) : second(batch.x), batch).backward();
  });
  for (const std::string& message : messages) EXPECT_THAT(message, HasSubstr("disagree"));
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

TEST(OneRankAlone, WhoseGuardOutlivesTheWrapperGoesOn) {
  comm::run_ranks(1, [](Communicator& group) {
    std::optional<Replica::NoSync> left;
    const auto net = make_net(1);
    {
      Replica replica(net, share(group));
      left.emplace(replica.no_sync());
    }
    Replica again(net, share(group));
    left.reset();
    const Batch batch = Batch::of_step(1);
    loss_of(again(batch.x), batch).backward();
  });
}

/// Trains four steps; returns the messages of both ranks, which must fail. @param clear what a rank
/// does with its gradients after a step's update.
std::vector<std::string> train_and_clear(
    const std::function<void(optim::SGD&, int rank, int step)>& clear) {
  return messages_of_ranks([&](Communicator& group) {
    Replica replica(make_net(1), share(group));
    optim::SGD optimizer(replica.parameters(), {.lr = 0.25});
    for (int step = 1; step <= 4; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
      clear(optimizer, group.rank(), step);
    }
  });
}

TEST(OneRankAlone, ThatLeavesOutZeroGradIsRefusedOnEveryRank) {
  const auto messages = train_and_clear([](optim::SGD& optimizer, int rank, int step) {
    if (rank == 0 || step != 2) optimizer.zero_grad();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("added to 8 gradients that were not cleared (0-7)"));
}

TEST(OneRankAlone, ThatLeavesOutZeroGradBeforeItAccumulatesIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([&](Communicator& group) {
    Replica replica(make_net(1), share(group));
    optim::SGD optimizer(replica.parameters(), {.lr = 0.25});
    for (int step = 1; step <= 4; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      {
        const auto guard = replica.no_sync();
        loss_of(replica(batch.x), batch).backward();
      }
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
      if (group.rank() == 0 || step != 2) optimizer.zero_grad();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("gradients that were not cleared"));
}

TEST(OneRankAlone, MayHaveGradientsThatOthersDoNotHaveOrClearThemTwice) {
  comm::run_ranks(2,
                  [](Communicator& group) {
                    const auto net = make_net(1);
                    Replica replica(net, share(group), {.find_unused_parameters = true});
                    optim::SGD optimizer(replica.parameters(), {.lr = 0.25});
                    for (int step = 1; step <= 6; ++step) {
                      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
                      const bool skips = group.rank() == step % 2;
                      const auto prediction = [&] {
                        return skips ? replica(batch.x, std::vector<std::size_t>{1})
                                     : replica(batch.x);
                      };
                      if (group.rank() == 1) {
                        const auto guard = replica.no_sync();
                        loss_of(prediction(), batch).backward();
                      }
                      loss_of(prediction(), batch).backward();
                      optimizer.step();
                      if (step == 3) continue;  // on all ranks
                      optimizer.zero_grad();
                      if (group.rank() == 1) optimizer.zero_grad();
                    }
                  },
                  {.timeout = 10s});
}

/// A module that calls a differentiable collective.
struct Shared : nn::Module {
  explicit Shared(CommunicatorPtr shares) : group(std::move(shares)) {}
  Tensor weight = ones({2});
  CommunicatorPtr group;
  Tensor forward(const Tensor& x) { return copy_to_group(x, group); }
};

struct TwoBranches : nn::Module {
  explicit TwoBranches(const CommunicatorPtr& group) : a(this, "a", group), b(this, "b", group) {}
  nn::Child<Shared> a, b;
};

TEST(OneRankAlone, ThatRunsBranchesInAnotherOrderIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    const auto net = nn::make<TwoBranches>(share(group));
    const Tensor x = ones({2}).set_requires_grad(), y = ones({2}).set_requires_grad();
    Tensor of_a, of_b;
    if (group.rank() == 0) of_a = net->a(x);
    of_b = net->b(y);
    if (group.rank() == 1) of_a = net->a(x);
    sum(of_a + of_b * 100.0).backward();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("gradient of copy_to_group #2 of [2] in b"),
                               HasSubstr("gradient of copy_to_group #2 of [2] in a")));
}

// A backward orders the ops of several threads by how many each has recorded.
TEST(OneRankAlone, WhoseThreadsRecordedMoreIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    const Tensor x = ones({2}).set_requires_grad(), y = ones({2}).set_requires_grad();
    if (group.rank() == 1) {
      for (int i = 0; i < 100; ++i) (void)(x * 2.0);
    }
    Tensor of_other;
    std::thread([&] {
      for (int i = 0; i < 50; ++i) (void)(y * 2.0);
      of_other = copy_to_group(y, share(group));
    }).join();
    sum(copy_to_group(x, share(group)) + of_other).backward();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("copy_to_group #1"), HasSubstr("copy_to_group #2")));
}

TEST(OneRankAlone, ThatGathersAlongAnotherDimensionIsRefusedOnEveryRank) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    all_gather(ones({2, 2}), share(group), group.rank(), ResultGradient::replicated);
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("all_gather along 0"), HasSubstr("all_gather along 1")));
}

TEST(OneRankAlone, ThatGathersWithoutAGradientIsToldSo) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Tensor x = ones({2, 2});
    if (group.rank() == 0) x.set_requires_grad();
    all_gather(x, share(group), 0, ResultGradient::partial);
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("(no gradient exchange)"));
}

TEST(OneRankAlone, MayBroadcastWhatOnlyItTrains) {
  comm::run_ranks(
      2,
      [](Communicator& group) {
        Tensor x = ones({2});
        if (group.rank() == 0) x.set_requires_grad();
        const Tensor y = broadcast(x, share(group), 0, ResultGradient::replicated);
        if (group.rank() == 0) {
          sum(y * 3.0).backward();
          EXPECT_EQ(sum(x.grad()).item(), 6.0);
        }
        EXPECT_EQ(sum(all_reduce(ones({2}), share(group), ResultGradient::replicated)).item(), 4.0);
      },
      {.timeout = 10s});
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
