// States that go by what they are of: under other names, in another order, or not there on some
// ranks.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "support/refusal.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::refusal, testing::run_job, testing::TemporaryFolder;

constexpr DType pair_dtype = DType::f64;

Tensor pair_input(int seed) {
  Generator generator(static_cast<std::uint64_t>(seed));
  return randn({3, 4}, {.dtype = pair_dtype}, generator);
}

/// Two layers of one size, registered in either order.
struct PairNet : nn::Module {
  explicit PairNet(bool swapped = false) {
    const nn::LinearOptions options{.in = 4, .out = 4, .tensor = {.dtype = pair_dtype}};
    if (swapped) b.emplace(this, "b", options);
    a.emplace(this, "a", options);
    if (!swapped) b.emplace(this, "b", options);
    const NoGradGuard no_recording;
    double begin = 0;
    for (const Tensor& each : {(*a)->weight, (*a)->bias, (*b)->weight, (*b)->bias})
      Tensor(each).copy_(
          sin(arange(each.numel(), {.dtype = pair_dtype}) + (begin += 9)).reshape(each.shape()));
  }
  Tensor forward(const Tensor& x, int uses = 2) const {
    return uses == 0 ? (*a)(x) : uses == 1 ? (*b)(x) : (*b)(tanh((*a)(x)));
  }
  std::optional<nn::Child<nn::Linear>> a, b;
};

std::vector<double> pair_values(const PairNet& pair) {
  return cat({(*pair.a)->weight.flatten(), (*pair.b)->weight.flatten()}, 0).to_vector<double>();
}

/// A module's parameters under other names, or none.
NamedTensors renamed_parameters(const NamedTensors& parameters, const std::string& prefix) {
  NamedTensors named;
  for (const auto& [name, parameter] : parameters)
    named.emplace_back(prefix == "none" ? "" : prefix + name, parameter);
  return named;
}

/// A rank's training that may go on from a checkpoint.
struct PairTraining {
  PairTraining(const CommunicatorPtr& group, const TemporaryFolder& folder, int zero_stage,
               const std::string& prefix, bool swapped = false)
      : net(nn::make<PairNet>(swapped)),
        ddp(net, group, {.zero_stage = zero_stage}),
        optimizer(renamed_parameters(ddp.named_parameters(), prefix), {.lr = 0.05}),
        checkpoints(folder.path(), group) {
    checkpoints.add("model", ddp);
    checkpoints.add("optimizer", optimizer, ddp);
  }
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      mean(square(ddp(pair_input(2 * step + ddp.replica().group()->rank())))).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  std::vector<double> values() const {
    const auto whole = ddp.whole_parameters();
    return pair_values(*net);
  }

  nn::ModulePtr<PairNet> net;
  DistributedDataParallel<PairNet> ddp;
  optim::AdamW optimizer;
  checkpoint::Manager checkpoints;
};

TEST(StatesOfShards, AreFoundUnderAnyName) {
  for (const std::string prefix : {"", "net.", "none"})
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << "names " << prefix << ", stage " << stage);
      const TemporaryFolder folder;
      std::vector<double> expected;
      run_job(2, [&](const CommunicatorPtr& group) {
        PairTraining training(group, folder, stage, prefix);
        training.train(0, 3);
        training.checkpoints.save(3);
        ASSERT_TRUE(training.checkpoints.wait()) << training.checkpoints.error();
        training.train(3, 6);
        const std::vector<double> values = training.values();
        if (group->rank() == 0) expected = values;
      });
      for (const bool swapped : {false, true})
        run_job(2, [&](const CommunicatorPtr& group) {
          if (swapped && prefix == "none") return;  // positions are what those have
          PairTraining training(group, folder, stage, prefix, swapped);
          ASSERT_EQ(training.checkpoints.load_newest(), 3);
          training.train(3, 6);
          EXPECT_EQ(training.values(), expected);
        });
      run_job(1, [&](const CommunicatorPtr& group) {  // the files are those of any ranks
        PairTraining training(group, folder, 0, prefix);
        EXPECT_EQ(training.checkpoints.load_newest(), 3);
      });
    }
}

TEST(StatesOfShards, OfTwoReplicasAreRefused) {
  run_job(2, [&](const CommunicatorPtr& group) {
    DistributedDataParallel<PairNet> first(nn::make<PairNet>(), group, {.zero_stage = 1}),
        second(nn::make<PairNet>(), group, {.zero_stage = 1});
    optim::AdamW optimizer(
        {{renamed_parameters(first.named_parameters(), "first."), {.lr = 0.1}},
         {renamed_parameters(second.named_parameters(), "second."), {.lr = 0.1}}});
    EXPECT_THAT(refusal([&] { checkpoint::state_of(optimizer, first.replica()); }),
                HasSubstr("second.a.weight"));
    mean(second(first(pair_input(1)))).backward();
    optimizer.step();
    EXPECT_THAT(refusal([&] { first.gather_optimizer_state(optimizer.state_dict()); }),
                HasSubstr("first.a.weight.exp_avg"));
  });
}

/// Local SGD in which ranks use a head of their own each, or rank 1 skips its first step.
TEST(StatesOfEachRank, AreSavedWhereRanksHaveSteppedOnOthers) {
  for (const bool skips : {false, true}) {
    const TemporaryFolder folder;
    std::vector<std::vector<double>> expected(2);
    const auto run = [&](int ranks, bool averages, int from, int to,
                         const std::function<void(int, const std::vector<double>&)>& done) {
      run_job(ranks, [&](const CommunicatorPtr& group) {
        const auto net = nn::make<PairNet>();
        DistributedDataParallel<PairNet> ddp(net, group, {.find_unused_parameters = !skips});
        optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.05});
        std::optional<LocalSGD> averaging;
        if (averages) averaging.emplace(ddp, optimizer, LocalSGDOptions{.sync_every = 4});
        amp::GradScaler scaler({.init_scale = 4});
        checkpoint::Manager checkpoints(folder.path(), group, {.partial = !averages});
        if (averages) checkpoints.add("averaging", *averaging);
        checkpoints.add("model", ddp);
        checkpoints.add("optimizer", optimizer, ddp);
        checkpoints.add("scaler", scaler, ddp);
        if (from > 0) {
          ASSERT_EQ(checkpoints.load_newest(), from);
        }
        for (int step = from; step < to; ++step) {
          const int uses = skips || !averages ? 2 : group->rank();
          Tensor loss = mean(square(ddp(pair_input(2 * step + group->rank()), uses)));
          if (skips && step == 0 && group->rank() == 1) loss = loss * INFINITY;
          scaler.scale(loss).backward();
          scaler.step(optimizer);
          scaler.update();
          optimizer.zero_grad();
          if (from > 0 || step > 0) continue;
          checkpoints.save(1);
          ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
        }
        done(group->rank(), pair_values(*net));
      });
    };
    run(2, true, 0, 3, [&](int rank, const std::vector<double>& values) {
      expected[static_cast<std::size_t>(rank)] = values;
    });
    run(2, true, 1, 3, [&](int rank, const std::vector<double>& values) {
      EXPECT_EQ(values, expected[static_cast<std::size_t>(rank)]) << rank << " skips " << skips;
    });
    // Goes on in synchronous training, and on other numbers of ranks.
    for (const int ranks : {1, 2, 3}) run(ranks, false, 1, 3, [](int, const auto&) {});
    run(3, true, 1, 3, [](int, const auto&) {});
  }
}

TEST(StatesOfMicroBatches, GoByNames) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto checkpoints_of = [&](DistributedDataParallel<PairNet>& ddp) {
      auto checkpoints = std::make_unique<checkpoint::Manager>(folder.path(), group);
      checkpoints->add("model", ddp);
      return checkpoints;
    };
    const auto net = nn::make<PairNet>(false), other = nn::make<PairNet>(true);
    DistributedDataParallel<PairNet> ddp(net, group, {.find_unused_parameters = true}),
        swapped(other, group, {.find_unused_parameters = true});
    {
      const auto local = ddp.no_sync();
      mean(ddp(pair_input(group->rank()), 0)).backward();
      const auto checkpoints = checkpoints_of(ddp);
      checkpoints->save(1);
      ASSERT_TRUE(checkpoints->wait()) << checkpoints->error();
    }
    checkpoints_of(swapped)->load_newest();
    EXPECT_TRUE(equal((*other->a)->weight.grad(), (*net->a)->weight.grad()));
    EXPECT_FALSE((*other->b)->weight.grad().defined());
  });
}

TEST(StatesOfDiLoCo, GoByNamesAndWithOtherOptions) {
  const DiLoCoOptions options{.sync_every = 7, .fragments = 1, .fragment_sync_delay = 4};
  const auto run = [&](bool swapped, const DiLoCoOptions& later) {
    std::vector<double> values;
    std::vector<NamedTensors> models(2), states(2);
    for (const bool resumes : {false, true})
      run_job(2, [&](const CommunicatorPtr& group) {
        const auto rank = static_cast<std::size_t>(group->rank());
        const auto net = nn::make<PairNet>(resumes && swapped);
        if (resumes) net->load_state_dict(models[rank]);
        DistributedDataParallel<PairNet> ddp(net, group);
        optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.05});
        DiLoCo averaging(ddp, optimizer, resumes ? later : options);
        if (resumes) averaging.load_state_dict(states[rank]);
        for (int step = resumes ? 8 : 0; step < (resumes ? 15 : 8); ++step) {
          mean(square(ddp(pair_input(2 * step + group->rank())))).backward();
          optimizer.step();
          optimizer.zero_grad();
          // What it has is what it takes, at any step.
          EXPECT_EQ(refusal([&] { averaging.load_state_dict(averaging.state_dict()); }),
                    "accepted");
        }
        if (resumes) {
          averaging.synchronize();
          if (rank == 0) values = pair_values(*net);
          return;
        }
        for (const auto& [name, value] : net->state_dict())
          models[rank].emplace_back(name, value.detach().clone());
        states[rank] = averaging.state_dict();
      });
    return values;
  };
  EXPECT_EQ(run(true, options), run(false, options));
  run(false, {.sync_every = 5, .fragments = 1, .fragment_sync_delay = 4});
  run(false, {.sync_every = 7, .fragments = 1, .fragment_sync_delay = 6});
}

TEST(StatesOfAverages, ThatRanksHaveUpdatedDifferentlyAreRefused) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto net = nn::make<PairNet>();
    DistributedDataParallel<PairNet> ddp(net, group);
    optim::WeightAverage average(net->named_parameters());
    checkpoint::Manager checkpoints(folder.path(), group);
    checkpoints.add("model", ddp);
    checkpoints.add("average", average, ddp);
    average.update();
    checkpoints.save(1);
    EXPECT_TRUE(checkpoints.wait()) << checkpoints.error();
    if (group->rank() == 0) average.update();
    const std::string refused = refusal([&] {
      checkpoints.save(2);
      if (!checkpoints.wait()) throw InvalidArgument(checkpoints.error());
    });
    EXPECT_THAT(refused, HasSubstr("'average after 2 updates' was added on rank 0"));
  });
}

TEST(WeightAverage, RefusesTwoParametersOfOneName) {
  const auto first = nn::make<PairNet>(), second = nn::make<PairNet>();
  NamedTensors both = first->named_parameters();
  for (const auto& each : second->named_parameters()) both.push_back(each);
  EXPECT_THAT(refusal([&] { optim::WeightAverage average(both); }), HasSubstr("a.weight"));
}

}  // namespace
}  // namespace lockstep
