#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"

// What each rank has of its own: replicas that differ between averages, PowerSGD's errors; and
// gradients that are applied late.

namespace lockstep {
namespace {

using testing::run_job, testing::TemporaryFolder;
namespace fs = std::filesystem;

enum class Kind { synchronous, local, diloco, stale, power_sgd };

struct BufferedNet : nn::Module {
  nn::Child<nn::Linear> hidden{this, "hidden", 12, 16};
  nn::Child<nn::Linear> output{this, "output", 16, 8};
  nn::Buffer seen{this, "seen", zeros({1})};
  Tensor forward(const Tensor& x) {
    Tensor(seen).mul_(0.5).add_(x.detach().mean());
    return output(relu(hidden(x)));
  }
};

/// One rank of a small training, with other samples on each.
class RankTraining {
 public:
  RankTraining(const CommunicatorPtr& group, const fs::path& folder, Kind kind)
      : group_(group),
        ddp_(model_, group),
        optimizer_(ddp_.named_parameters(), {.lr = 0.02}),
        scaler_({.init_scale = 2.0 * (1 + group->rank()), .growth_interval = 3}),
        checkpoints_(folder, group, {.keep_last = 99}) {
    if (kind == Kind::local)
      averaging_ = std::make_unique<LocalSGD>(ddp_, optimizer_, LocalSGDOptions{.sync_every = 3});
    if (kind == Kind::diloco)
      averaging_ = std::make_unique<DiLoCo>(ddp_, optimizer_,
                                            DiLoCoOptions{.sync_every = 4,
                                                          .fragments = 2,
                                                          .fragment_sync_delay = 1,
                                                          .fragment_update_alpha = 0.5});
    checkpoints_.add("model", ddp_);
    checkpoints_.add("optimizer", optimizer_, ddp_);
    if (averaging_) {
      checkpoints_.add("averaging", *averaging_);
      checkpoints_.add("scaler", scaler_, ddp_);
    }
    if (kind == Kind::power_sgd) {
      power_sgd_ = std::make_shared<parallel::PowerSgd>(
          parallel::PowerSgdOptions{.matrix_approximation_rank = 1, .start_iteration = 2});
      ddp_.register_comm_hook(power_sgd_);
      checkpoints_.add("hook", *power_sgd_, ddp_);
    }
    if (kind == Kind::stale) {
      const auto hook = std::make_shared<parallel::DelayedReduction>();
      ddp_.register_comm_hook(hook);
      checkpoints_.add("hook", *hook);
    }
  }

  /// Makes steps up to a number, and saves behind each.
  void train(std::int64_t steps, bool saves) {
    for (; step_ < steps; ++step_) {
      Generator generator(static_cast<std::uint64_t>(1 + 100 * step_ + group_->rank()));
      const Tensor loss = ddp_(randn({4, 12}, {}, generator)).square().mean();
      if (averaging_)
        scaler_.scale(loss).backward();
      else
        loss.backward();
      if (averaging_) {
        scaler_.step(optimizer_);
        scaler_.update();
      } else {
        optimizer_.step();
      }
      optimizer_.zero_grad();
      if (saves) checkpoints_.save(step_ + 1);
    }
    ASSERT_TRUE(checkpoints_.wait()) << checkpoints_.error();
  }
  void load(const fs::path& checkpoint) { step_ = checkpoints_.load(checkpoint); }
  /// Weights, buffer, moments and scale of this rank.
  std::vector<double> values() {
    std::vector<double> all{scaler_.get_scale()};
    for (const auto& state : {model_->state_dict(), optimizer_.state_dict()})
      for (const auto& [name, tensor] : state)
        for (const double value : tensor.to(DType::f64).to_vector<double>()) all.push_back(value);
    return all;
  }
  std::vector<double> weights() {
    return Tensor(model_->output->named_parameters()[0].second).to(DType::f64).to_vector<double>();
  }
  parallel::PowerSgd& power_sgd() { return *power_sgd_; }

 private:
  static nn::ModulePtr<BufferedNet> make_model() {
    manual_seed(7);
    return nn::make<BufferedNet>();
  }
  CommunicatorPtr group_;
  nn::ModulePtr<BufferedNet> model_ = make_model();
  DistributedDataParallel<BufferedNet> ddp_;
  optim::AdamW optimizer_;
  amp::GradScaler scaler_;
  std::shared_ptr<parallel::PowerSgd> power_sgd_;
  std::unique_ptr<PeriodicAveraging> averaging_;
  checkpoint::Manager checkpoints_;
  std::int64_t step_ = 0;
};

/// Trains on so many ranks and gives what `values` has of each; saves behind each step.
template <class Values>
auto train_each_rank(int ranks, const fs::path& folder, Kind kind, std::int64_t steps,
                     const Values& values) {
  std::vector<decltype(values(std::declval<RankTraining&>()))> all(static_cast<std::size_t>(ranks));
  run_job(ranks, [&](const CommunicatorPtr& group) {
    RankTraining run(group, folder, kind);
    run.train(steps, true);
    all[static_cast<std::size_t>(group->rank())] = values(run);
  });
  return all;
}

void expect_close_values(const std::vector<double>& found, const std::vector<double>& expected) {
  EXPECT_THAT(found, ::testing::Pointwise(::testing::DoubleNear(1e-7), expected));
}

std::vector<double> mean_of(const std::vector<std::vector<double>>& all) {
  std::vector<double> mean(all[0].size());
  for (const auto& each : all)
    for (std::size_t i = 0; i < mean.size(); ++i)
      mean[i] += each[i] / static_cast<double>(all.size());
  return mean;
}

TEST(EachRank, GoesOnBitwiseBehindAnyStep) {
  constexpr std::int64_t steps = 9;
  for (const Kind kind : {Kind::local, Kind::diloco, Kind::stale, Kind::power_sgd})
    for (const int ranks : {1, 3}) {
      const TemporaryFolder folder;
      const auto values = [](RankTraining& run) { return run.values(); };
      const auto expected = train_each_rank(ranks, folder / "run", kind, steps, values);
      run_job(ranks, [&](const CommunicatorPtr& group) {
        for (std::int64_t step = 1; step < steps; ++step) {
          RankTraining run(group, folder / "again", kind);
          run.load(folder / ("run/step-" + std::to_string(step)));
          run.train(steps, false);
          EXPECT_EQ(run.values() == expected[static_cast<std::size_t>(group->rank())], true)
              << "kind " << static_cast<int>(kind) << ", step " << step << " of rank "
              << group->rank();
        }
      });
      EXPECT_TRUE(checkpoint::verify(folder / "run/step-5").empty());
    }
}

TEST(EachRank, KeepsBuffersOfItsOwnThatTheModuleGetsBehindTheirState) {
  const TemporaryFolder folder;
  for (const bool loads : {false, true})
    run_job(2, [&](const CommunicatorPtr& group) {
      const auto model = nn::make<nn::Linear>(2, 2);
      DistributedDataParallel<nn::Linear> ddp(model, group, {.broadcast_buffers = false});
      checkpoint::Manager checkpoints(folder / "run", group);
      checkpoints.add("model", ddp);
      const Tensor late =
          model->register_buffer("late", full({1}, loads ? 0.0 : 1.0 + group->rank()));
      if (loads) {
        checkpoints.load_newest();
        EXPECT_EQ(late.item<float>(), 1.0F + static_cast<float>(group->rank()));
      } else {
        checkpoints.save(1);
        EXPECT_TRUE(checkpoints.wait()) << checkpoints.error();
      }
    });
}

TEST(EachRank, OtherNumbersOfRanksGoOnFromTheAverageOfReplicas) {
  const TemporaryFolder folder;
  const auto replicas = train_each_rank(3, folder / "run", Kind::local, 5,
                                        [](RankTraining& run) { return run.weights(); });
  ASSERT_NE(replicas[0], replicas[1]);
  for (const int ranks : {1, 2, 4})
    for (const Kind kind : {Kind::local, Kind::synchronous})
      run_job(ranks, [&](const CommunicatorPtr& group) {
        RankTraining run(group, folder / "again", kind);
        run.load(folder / "run/step-5");
        expect_close_values(run.weights(), mean_of(replicas));
        run.train(8, false);
      });
  run_job(3, [&](const CommunicatorPtr& group) {  // who would have kept them apart is gone
    RankTraining run(group, folder / "again", Kind::synchronous);
    run.load(folder / "run/step-5");
    expect_close_values(run.weights(), mean_of(replicas));
  });
}

TEST(EachRank, ReplicasBeginWhereASynchronousRunWas) {
  const TemporaryFolder folder;
  const auto saved = train_each_rank(2, folder / "run", Kind::synchronous, 3,
                                     [](RankTraining& run) { return run.weights(); });
  run_job(3, [&](const CommunicatorPtr& group) {
    auto model = nn::make<BufferedNet>();
    DistributedDataParallel ddp(model, group);
    optim::AdamW optimizer(ddp.named_parameters(), {});
    LocalSGD averaging(ddp, optimizer);
    checkpoint::Manager checkpoints(folder / "again", group);
    checkpoints.add("model", ddp);
    checkpoints.add("optimizer", optimizer, ddp);
    checkpoints.load(folder / "run/step-3");
    expect_close_values(
        Tensor(model->output->named_parameters()[0].second).to(DType::f64).to_vector<double>(),
        saved[0]);
  });
}

/// Weights behind some steps of DiLoCo that begin with those of a checkpoint without it.
std::vector<double> behind_diloco(const CommunicatorPtr& group, const fs::path& folder,
                                  const fs::path& checkpoint, bool is_made_before_the_load) {
  auto model = nn::make<BufferedNet>();
  DistributedDataParallel ddp(model, group);
  optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.02});
  std::optional<DiLoCo> averaging;
  const auto make = [&] { averaging.emplace(ddp, optimizer, DiLoCoOptions{.sync_every = 2}); };
  checkpoint::Manager checkpoints(folder, group, {.partial = true});
  checkpoints.add("model", ddp);
  if (is_made_before_the_load) {
    make();
    checkpoints.add("averaging", *averaging);
  }
  checkpoints.load(checkpoint);
  if (!is_made_before_the_load) make();
  for (std::uint64_t step = 0; step < 3; ++step) {
    Generator generator(10 * step + static_cast<std::uint64_t>(group->rank()));
    ddp(randn({4, 12}, {}, generator)).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  averaging->synchronize();
  return model->output->weight.to(DType::f64).to_vector<double>();
}

TEST(EachRank, OuterParametersBeginWhereASynchronousRunWas) {
  const TemporaryFolder folder;
  train_each_rank(2, folder / "run", Kind::synchronous, 3,
                  [](RankTraining& run) { return run.weights(); });
  run_job(2, [&](const CommunicatorPtr& group) {
    const fs::path checkpoint = folder / "run/step-3";
    manual_seed(11);
    EXPECT_EQ(behind_diloco(group, folder / "before", checkpoint, true),
              behind_diloco(group, folder / "behind", checkpoint, false));
  });
}

/// The loss scales of two ranks that go on from a checkpoint of replicas that were, or are, trained
/// alone; their own are 2 and 4 when they are.
std::vector<double> scales_gone_on_with(bool saved_alone, bool alone) {
  const TemporaryFolder folder;
  std::vector<double> scales(2);
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto run = [&](bool has_own, const auto& body) {
      auto model = nn::make<BufferedNet>();
      DistributedDataParallel ddp(model, group);
      optim::AdamW optimizer(ddp.named_parameters(), {});
      std::optional<LocalSGD> averaging;
      if (has_own) averaging.emplace(ddp, optimizer);
      amp::GradScaler scaler({.init_scale = has_own ? 2.0 * (1 + group->rank()) : 8.0});
      checkpoint::Manager checkpoints(folder / "run", group);
      checkpoints.add("scaler", scaler, ddp);
      body(checkpoints, scaler);
    };
    run(saved_alone, [](checkpoint::Manager& checkpoints, auto&) {
      checkpoints.save(1);
      ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    });
    run(alone, [&](checkpoint::Manager& checkpoints, amp::GradScaler& scaler) {
      EXPECT_EQ(checkpoints.load_newest(), 1);
      scales[static_cast<std::size_t>(group->rank())] = scaler.get_scale();
    });
  });
  return scales;
}

TEST(EachRank, ALossScaleGoesFromReplicasThatTrainAloneToOthersAndBack) {
  EXPECT_THAT(scales_gone_on_with(true, true), ::testing::ElementsAre(2, 4));
  EXPECT_THAT(scales_gone_on_with(true, false), ::testing::ElementsAre(2, 2));
  EXPECT_THAT(scales_gone_on_with(false, true), ::testing::ElementsAre(8, 8));
}

TEST(EachRank, TheAverageOfPowerSgdsErrorsIsTheSameOnAnyNumberOfRanks) {
  const TemporaryFolder folder;
  const auto error_of = [](RankTraining& run) {
    for (const auto& [name, tensor] : run.power_sgd().state_dict())
      if (name == "hidden.weight.error") return tensor.to(DType::f64).to_vector<double>();
    return std::vector<double>();
  };
  const auto errors = train_each_rank(2, folder / "run", Kind::power_sgd, 5, error_of);
  ASSERT_EQ(errors[0].size(), 16u * 12u);
  ASSERT_NE(errors[0], errors[1]);
  for (const int ranks : {1, 3})
    run_job(ranks, [&](const CommunicatorPtr& group) {
      RankTraining run(group, folder / "again", Kind::power_sgd);
      run.load(folder / "run/step-5");
      expect_close_values(error_of(run), mean_of(errors));
      run.train(8, false);
    });
}

}  // namespace
}  // namespace lockstep
