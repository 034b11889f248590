// Local SGD, DiLoCo and delayed averages: over ranks that are threads, where one of them does
// otherwise, how well they learn, and what they send.

#include <atomic>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <thread>

#include "lockstep/comm/thread_world.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/delayed_reduction.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "parallel/averaged_alone.hpp"
#include "parallel/contracts.hpp"
#include "parallel/one_rank_alone.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::name_of_ranks, lockstep::testing::threads;

const auto averaging_groups = ::testing::Values(threads(1), threads(2), threads(3));
INSTANTIATE_TEST_SUITE_P(Thread, PeriodicAveragingContract, averaging_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, DelayedReductionContract, averaging_groups, name_of_ranks);

/// Trains by DiLoCo; `after` is called after each step.
void train_diloco(
    Communicator& group, const DiLoCoOptions& options, int steps,
    const std::function<void(Replica&, optim::Optimizer&, DiLoCo&, int step)>& after) {
  Replica replica(make_net(7), share(group));
  optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
  DiLoCo averaging(replica, optimizer, options);
  for (int step = 0; step < steps; ++step) {
    train_steps(replica, optimizer, group, step, step + 1);
    after(replica, optimizer, averaging, step);
  }
}

TEST(PeriodicAveraging, RefusesRanksThatDiffer) {
  const auto expect_on_both = [](const auto& body, const std::string& expected) {
    for (const std::string& message : messages_of_ranks(body))
      EXPECT_THAT(message, ContainsRegex(expected));
  };
  // A step more when all are to be equal; one between two exchanges; another rate, period, state.
  expect_on_both(
      [](Communicator& group) {
        train_diloco(group, {.sync_every = 8}, 5 + (group.rank() == 0),
                     [&](auto&, auto&, DiLoCo& averaging, int step) {
                       if (step == 4 + (group.rank() == 0)) averaging.synchronize();
                     });
      },
      "steps of DiLoCo is 6 on rank 0 but 5 on rank 1");
  expect_on_both(
      [](Communicator& group) {
        train_diloco(group, {.sync_every = 4}, 8,
                     [&](auto&, optim::Optimizer& optimizer, auto&, int step) {
                       if (step == 0 && group.rank() == 1) optimizer.step();
                     });
      },
      "after step 4 and [34] forwards");
  expect_on_both(
      [](Communicator& group) {
        train_diloco(group, {.sync_every = 4}, 8,
                     [&](auto&, optim::Optimizer& optimizer, auto&, int) {
                       optimizer.set_lr(group.rank() == 1 ? 0.5 : 0.25);
                     });
      },
      "forwards, lr 0.(2)?5");
  expect_on_both(
      [](Communicator& group) {
        train_diloco(group, {.sync_every = 4 + group.rank()}, 1, [](auto&&...) {});
      },
      "sync_every is 4 on rank 0 but 5 on rank 1");
  expect_on_both(
      [](Communicator& group) {
        train_diloco(group, {.sync_every = 8}, 2, [&](auto&, auto&, DiLoCo& averaging, int step) {
          if (step == 1) return averaging.load_state_dict(averaging.state_dict());
          NamedTensors state = averaging.state_dict();
          if (group.rank() == 1) state[0].second = tensor(std::int64_t{2});
          averaging.load_state_dict(state);
        });
      },
      "state that DiLoCo loads");
}

TEST(DivergenceCheck, NamesWhatLetsRanksDiffer) {
  comm::run_ranks(2, [](Communicator& group) {
    Replica replica(make_net(1), share(group));
    DivergenceCheck check(replica.named_parameters(), share(group));
    const auto message = [&] { return message_of<comm::Mismatch>([&] { check.run(); }); };
    const auto differ = [&] {
      const NoGradGuard no_recording;
      replica.parameters()[0].fill_(group.rank());
    };
    differ();
    EXPECT_THAT(message(), AllOf(HasSubstr("they were not compared before. Give all ranks the "
                                           "same values before they train"),
                                 Not(HasSubstr("checkpoint of then"))));
    replica.register_comm_hook("mine", [](GradBucket&) -> BucketExchange { co_return; });
    EXPECT_THAT(message(), HasSubstr("The communication hook 'mine' must leave the same gradients "
                                     "on all ranks. If that is so, suspect that machine"));
    Replica again(make_net(1), share(group));
    DivergenceCheck after(again.named_parameters(), share(group), {.every = 1});
    after.step();
    optim::SGD optimizer(again.named_parameters(), {.lr = 0.1});
    LocalSGD averaging(again, optimizer, {.sync_every = 2});
    train_steps(again, optimizer, group, 0, 1);
    EXPECT_THAT(message_of<comm::Mismatch>([&] { after.step(); }),
                HasSubstr("all were equal after step 1. LocalSGD lets ranks differ between its "
                          "averages: call run() behind its synchronize(), and no step(). Go on "
                          "from a checkpoint of then"));
    averaging.synchronize();
    after.run();
  });
}

TEST(PeriodicAveraging, OfOneRankAloneIsRefused) {
  for (const std::string& message : messages_of_ranks([](Communicator& group) {
         Replica replica(make_net(7), share(group));
         optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
         train_steps(replica, optimizer, group, 0, 2);
         std::optional<LocalSGD> averaging;
         if (group.rank() == 1) averaging.emplace(replica, optimizer);
         train_steps(replica, optimizer, group, 2, 4);
       }))
    EXPECT_THAT(message, HasSubstr("settings"));
}

TEST(PeriodicAveraging, EndsOnAllRanksWithAnErrorBetweenExchanges) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    train_diloco(group, {.sync_every = 4, .fragments = 2, .fragment_sync_delay = 1}, 8,
                 [&](auto&, auto&, auto&, int step) {
                   if (step == 2 && group.rank() == 1) throw std::runtime_error("no more data");
                 });
  });
  EXPECT_THAT(messages[0], HasSubstr("no more data"));
  EXPECT_EQ(messages[1], "no more data");
}

TEST(PeriodicAveraging, MayEndWithAverageUnderWayButNotAfterDifferentSteps) {
  const auto run = [](int more) {
    comm::run_ranks(2,
                    [&](Communicator& group) {
                      train_diloco(group, {.sync_every = 4, .fragment_sync_delay = 3},
                                   5 + more * group.rank(), [](auto&&...) {});
                    },
                    {.timeout = 10s});
  };
  run(0);
  try {
    run(1);
    ADD_FAILURE() << "ranks ended after different numbers of steps";
  } catch (const comm::Mismatch& error) {
    EXPECT_THAT(error.what(), HasSubstr("DiLoCo ended after 5 steps"));
  }
}

// Rank 1 begins what rank 0 is to exchange with it only once that one is steps ahead.
TEST(AsynchronousTraining, GoesOnBeforeTheOthersHaveCome) {
  const auto run = [](const auto& body) {
    std::atomic<bool> is_ahead = false;
    comm::run_ranks(2,
                    [&](Communicator& group) {
                      body(group, [&](bool waits, bool comes) {
                        while (waits && group.rank() == 1 && !is_ahead) std::this_thread::yield();
                        if (comes && group.rank() == 0) is_ahead = true;
                      });
                    },
                    {.timeout = 20s});
  };
  run([](Communicator& group, const auto& meet) {
    train_diloco(group, {.sync_every = 4, .fragment_sync_delay = 3}, 8,
                 [&](auto&, auto&, auto&, int step) { meet(step == 2, step == 5); });
  });
  run([](Communicator& group, const auto& meet) {
    Replica replica(make_net(7), share(group));
    replica.register_comm_hook(std::make_shared<DelayedReduction>());
    for (int step = 0; step < 5; ++step) {
      const Batch batch = own_part(group, step);
      meet(step == 3, false);
      loss_of(replica(batch.x), batch).backward();
      meet(false, step == 3);
      replica.module().zero_grad();
    }
  });
}

/// Noisy values of a network that the student cannot know by heart.
Batch noisy_batch(std::uint64_t seed, std::int64_t rows) {
  static const auto teacher = make_net(42);
  Generator generator(seed);
  const NoGradGuard no_grad;
  const TensorOptions f64{.dtype = DType::f64};
  const Tensor x = randn({rows, 6}, f64, generator);
  return {x, teacher->forward(x) + 0.3 * randn({rows, 3}, f64, generator)};
}

struct Trained {
  double loss = 0, bytes_per_step = 0;
};

enum class Way { synchronous, local, diloco, streaming, stale };

/// The same samples in each way.
Trained train_on_noise(Way way) {
  constexpr int ranks = 4, steps = 480;
  Trained trained;
  comm::run_ranks(ranks, [&](Communicator& group) {
    Replica replica(make_net(7), share(group));
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 5e-3});
    std::unique_ptr<PeriodicAveraging> averaging;
    if (way == Way::stale) replica.register_comm_hook(std::make_shared<DelayedReduction>());
    if (way == Way::local)
      averaging = std::make_unique<LocalSGD>(replica, optimizer, LocalSGDOptions{.sync_every = 8});
    if (way == Way::diloco)
      averaging = std::make_unique<DiLoCo>(replica, optimizer, DiLoCoOptions{.sync_every = 12});
    if (way == Way::streaming)
      averaging = std::make_unique<DiLoCo>(replica, optimizer,
                                           DiLoCoOptions{.sync_every = 12,
                                                         .fragments = 3,
                                                         .fragment_sync_delay = 2,
                                                         .fragment_update_alpha = 0.5});
    for (int step = 0; step < steps; ++step) {
      const Batch batch =
          noisy_batch(static_cast<std::uint64_t>(100 + step * ranks + group.rank()), 8);
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    double bytes = 0;
    for (const BucketTrace& bucket : replica.reducer().trace().buckets)
      bytes += static_cast<double>(bucket.bytes);
    if (averaging) bytes = static_cast<double>(averaging->bytes_reduced()) / steps;
    if (averaging) averaging->synchronize();
    if (group.rank() != 0) return;
    const NoGradGuard no_grad;
    const Batch test = noisy_batch(1, 2000);
    trained = {loss_of(replica.module().forward(test.x), test).item(), bytes};
  });
  return trained;
}

TEST(AsynchronousTraining, EndsNearTheLossOfSynchronousTrainingWithFewerBytes) {
  const Trained synchronous = train_on_noise(Way::synchronous);
  const auto expect = [&](const char* name, Way way, double less) {
    const Trained trained = train_on_noise(way);
    std::cout << name << ": loss " << trained.loss / synchronous.loss << ", bytes a step "
              << trained.bytes_per_step / synchronous.bytes_per_step
              << " of synchronous training's\n";
    EXPECT_LT(trained.loss, 1.05 * synchronous.loss) << name;
    EXPECT_NEAR(trained.bytes_per_step * less / synchronous.bytes_per_step, 1.0, 0.1) << name;
  };
  expect("LocalSGD, 8 steps", Way::local, 8);
  expect("DiLoCo, 12 steps", Way::diloco, 12);
  expect("Streaming DiLoCo, 12 steps", Way::streaming, 12);
  expect("DelayedReduction", Way::stale, 1);
}

}  // namespace
}  // namespace lockstep::parallel::testing
