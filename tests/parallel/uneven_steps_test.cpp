#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/mean_metric.hpp"
#include "lockstep/train/loop.hpp"
#include "parallel/small_training.hpp"

// Steps of ranks that differ: in what they do, which is refused, and in how many rows they have.

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_job;
using ::testing::ThrowsMessage;

/// A linear model and its optimizer on one rank.
struct LinearTraining {
  explicit LinearTraining(const CommunicatorPtr& group, int zero = 0)
      : net((manual_seed(1), nn::make<nn::Linear>(3, 2))),
        ddp(net, group, {.zero_stage = zero}),
        optimizer(ddp.named_parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}) {}
  Step::Loss loss() {
    return [this](Inputs in) { return nn::functional::mse_loss(ddp(in[0]), in[1]); };
  }
  std::vector<double> weights() const {
    const auto whole = ddp.whole_parameters();
    return net->weight.to(DType::f64).to_vector<double>();
  }

  nn::ModulePtr<nn::Linear> net;
  DistributedDataParallel<nn::Linear> ddp;
  optim::SGD optimizer;
};

/// What the first step says on two ranks of which the second has its own options, or loss.
template <class Matcher>
void expect_mismatch(const StepOptions& first, const StepOptions& second, const Matcher& matcher,
                     bool has_own_average = false) {
  run_job(2, [&](const CommunicatorPtr& group) {
    LinearTraining training(group);
    const std::vector<double> before = training.weights();
    optim::WeightAverage average(training.net->named_parameters(), {.decay = 0.9});
    amp::GradScaler scaler;
    StepOptions options = group->rank() == 0 ? first : second;
    if (has_own_average && group->rank() == 1) options.average = &average;
    Step step(training.ddp, training.optimizer, training.loss(), options);
    EXPECT_THAT(
        [&] {
          step({ones({4, 3}), ones({4, 2})});
        },
        ThrowsMessage<comm::Mismatch>(matcher));
    EXPECT_EQ(training.weights(), before);
  });
}

TEST(TrainStep, RefusesRanksWithOtherOptionsBeforeTheFirstUpdate) {
  expect_mismatch(
      {}, {},
      AllOf(HasSubstr("train::Step"), HasSubstr("\"average none,\" on rank 0, \"average "
                                                "of decay 0.9,\" on rank 1")),
      true);
  expect_mismatch({}, {.autocast = DType::bf16},
                  HasSubstr("\"autocast none,\" on rank 0, \"autocast bf16,\" on rank 1"));
  expect_mismatch({.max_norm = 0.5}, {}, HasSubstr("max_norm 0.5"));
  amp::GradScaler scalers[2];
  expect_mismatch({}, {.scaler = &scalers[1]},
                  HasSubstr("\"scaler none,\" on rank 0, \"scaler given,\" on rank 1"));
}

TEST(TrainStep, TakesRanksWithTheirOwnMicroBatches) {
  run_job(2, [&](const CommunicatorPtr& group) {
    LinearTraining training(group);
    amp::GradScaler off({.enabled = false});
    StepOptions options{.micro_batch = 1 + group->rank()};
    if (group->rank() == 1) options.scaler = &off;
    Step step(training.ddp, training.optimizer, training.loss(), options);
    EXPECT_NO_THROW(step({ones({4, 3}), ones({4, 2})}));
  });
}

// Norms over the ranks, or a collective in the loss: all make as many parts, some of fewer rows, or
// of none.
TEST(TrainStep, MakesAsManyMicroBatchesOnAllRanksWhereForwardsAreCollective) {
  struct Normed : nn::Module {
    nn::Child<nn::Linear> in{this, "in", 3, 4}, out{this, "out", 4, 2};
    nn::Child<nn::BatchNorm1d> norm{this, "norm", 4};
    Tensor forward(const Tensor& x) { return out(norm(in(x))); }
  };
  for (const auto& [first, second] : {std::pair{5, 4}, {4, 0}, {4, 4}})
    for (const bool gathers : {false, true})
      run_job(2, [&, rows = std::array{first, second}](const CommunicatorPtr& group) {
        manual_seed(1);
        const auto net = nn::make<Normed>();
        if (gathers)
          net->norm->eval();
        else
          nn::convert_sync_batchnorm(*net, group);
        DistributedDataParallel<Normed> ddp(net, group);
        optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
        Step step(ddp, optimizer,
                  [&](Inputs in) {
                    const Tensor y = ddp(in[0]);
                    const Tensor all = gathers
                                           ? parallel::all_gather(y.mean(0, true) * 0.0, group, 0,
                                                                  parallel::ResultGradient::partial)
                                           : zeros({1});
                    const double count = std::max<double>(1, static_cast<double>(y.size(0)));
                    return sum(square(y - in[1])) / count + where(isnan(all), 0, all).sum();
                  },
                  {.micro_batch = 2, .same_micro_batches = gathers});
        const auto own = static_cast<std::int64_t>(rows[static_cast<std::size_t>(group->rank())]);
        for (int i = 0; i < 2; ++i) {
          Generator generator(static_cast<std::uint64_t>(10 * i + group->rank()));
          step({randn({own, 3}, {}, generator), randn({own, 2}, {}, generator)});
        }
        const Tensor weight = net->out->weight.detach();
        const Tensor all = parallel::all_gather_async(weight.unsqueeze(0), *group).wait();
        EXPECT_TRUE(equal(all[0], all[1])) << rows[0] << " and " << rows[1];
        EXPECT_TRUE(lockstep::all(isfinite(weight)).item<bool>());
      });
}

// One counts rows, and the other tokens.
TEST(TrainStep, RefusesRanksThatWeighByOtherThings) {
  for (const bool is_tensor : {false, true})
    run_job(2, [&](const CommunicatorPtr& group) {
      LinearTraining training(group);
      Step step(training.ddp, training.optimizer, [&](Inputs in) -> WeightedLoss {
        const Tensor loss = training.loss()(in).loss;
        if (group->rank() == 0) return loss;
        if (is_tensor) return {loss, scalar(9.0)};
        return {loss, 9};
      });
      EXPECT_THAT(
          [&] {
            step({ones({4, 3}), ones({4, 2})});
          },
          ThrowsMessage<comm::Mismatch>(
              HasSubstr("\"weights: rows,\" on rank 0, \"weights: WeightedLoss,\" on rank 1")));
    });
}

TEST(TrainStep, TakesRanksOfWhichOneCountsOnTheHost) {
  run_job(2, [&](const CommunicatorPtr& group) {
    LinearTraining training(group);
    Step step(training.ddp, training.optimizer, [&](Inputs in) -> WeightedLoss {
      const Tensor loss = training.loss()(in).loss;
      if (group->rank() == 0) return {loss, 9};
      return {loss, scalar(9.0)};
    });
    EXPECT_NO_THROW(step({ones({4, 3}), ones({4, 2})}));
  });
}

enum class Counts { rows, number, tensor };

struct UnevenOutcome {
  std::vector<double> losses, weights;
};

/// Two steps on 5 rows, all of which the first rank has.
UnevenOutcome train_on_first(int ranks, Counts counts, const StepOptions& options, int zero) {
  UnevenOutcome outcome;
  run_job(ranks, [&](const CommunicatorPtr& group) {
    LinearTraining training(group, zero);
    amp::GradScaler scaler({.init_scale = 8, .group = training.ddp.shard_group()});
    StepOptions own = options;
    if (zero == 0) own.scaler = &scaler;
    Step step(
        training.ddp, training.optimizer,
        [&](Inputs in) -> WeightedLoss {
          const Tensor loss = training.loss()(in).loss;
          if (counts == Counts::rows) return loss;
          const Tensor number = ne(in[1], 7.0).sum();
          if (counts == Counts::tensor) return {loss, number};
          return {loss, number.item()};
        },
        own);
    const std::int64_t rows = group->rank() == 0 ? 5 : 0;
    Generator generator(2);
    for (int i = 0; i < 2; ++i) {
      const Tensor x = randn({5, 3}, {}, generator).slice(0, 0, rows);
      const double loss = step({x, ones({rows, 2})}).loss.item();
      if (group->rank() == 0) outcome.losses.push_back(loss);
    }
    const std::vector<double> weights = training.weights();
    if (group->rank() == 0) outcome.weights = weights;
  });
  return outcome;
}

TEST(TrainStep, OfARankWithoutRowsIsThatOfTheOthers) {
  for (const Counts counts : {Counts::rows, Counts::number, Counts::tensor})
    for (const int zero : {0, 1, 2, 3})
      for (const int micro_batch : {0, 2})
        for (const bool captures : {false, true}) {
          const StepOptions options{
              .max_norm = 0.5, .micro_batch = micro_batch, .capture = captures};
          const UnevenOutcome alone = train_on_first(1, counts, options, zero);
          const UnevenOutcome shared = train_on_first(3, counts, options, zero);
          const auto near = ::testing::Pointwise(::testing::DoubleNear(1e-6), alone.losses);
          EXPECT_THAT(shared.losses, near) << "zero_stage " << zero;
          EXPECT_THAT(shared.weights,
                      ::testing::Pointwise(::testing::DoubleNear(1e-6), alone.weights))
              << "zero_stage " << zero << ", micro-batches of " << micro_batch;
        }
}

/// A step on 7 rows, of which ranks may have other numbers. @return the weights.
std::vector<double> train_on_rows(const std::vector<std::int64_t>& rows, std::int64_t micro_batch,
                                  bool first_has_parts = true) {
  std::vector<double> weights;
  run_job(static_cast<int>(rows.size()), [&](const CommunicatorPtr& group) {
    LinearTraining training(group, 3);
    const bool has_parts = micro_batch > 0 && (group->rank() > 0 || first_has_parts);
    std::int64_t most = 0;
    Step step(training.ddp, training.optimizer,
              [&](Inputs in) {
                most = std::max(most, in[0].size(0));
                return training.loss()(in);
              },
              {.micro_batch = has_parts ? micro_batch : 0, .capture = group->rank() == 0});
    for (int i = 0; i < 5; ++i) {
      Generator generator(static_cast<std::uint64_t>(i));
      const Tensor x = randn({7, 3}, {}, generator);
      std::int64_t begin = 0;
      for (int rank = 0; rank < group->rank(); ++rank)
        begin += rows[static_cast<std::size_t>(rank)];
      const std::int64_t end = begin + rows[static_cast<std::size_t>(group->rank())];
      step({x.slice(0, begin, end), ones({end - begin, 2})});
    }
    if (has_parts) {
      EXPECT_LE(most, micro_batch);
    }
    const std::vector<double> own = training.weights();
    if (group->rank() == 0) weights = own;
  });
  return weights;
}

TEST(TrainStep, MayHaveOtherNumbersOfPartsWhereParametersAreGathered) {
  const auto near = ::testing::Pointwise(::testing::DoubleNear(1e-6), train_on_rows({7}, 0));
  EXPECT_THAT(train_on_rows({4, 3}, 2), near);
  EXPECT_THAT(train_on_rows({5, 2}, 2), near);
  EXPECT_THAT(train_on_rows({6, 1}, 2), near);
  EXPECT_THAT(train_on_rows({0, 7}, 2), near);
  EXPECT_THAT(train_on_rows({1, 6, 0}, 1), near);
  EXPECT_THAT(train_on_rows({4, 3}, 2, false), near);
}

/// Mean losses of a training of two epochs of 9 samples in batches of 4, and of their evaluation.
std::vector<double> train_to_the_last_sample(int ranks, int workers) {
  std::vector<double> losses;
  run_job(ranks, [&](const CommunicatorPtr& group) {
    LinearTraining training(group);
    Generator generator(2);
    const data::TensorDataset dataset({randn({9, 3}, {}, generator), ones({9, 2})});
    const auto loader = [&](auto sampler) {
      return data::DataLoader(dataset, sampler,
                              {.batch_size = 4,
                               .allow_empty = true,
                               .rank = group->rank(),
                               .world_size = ranks,
                               .num_workers = workers});
    };
    auto train = loader(data::RandomSampler(9, 3));
    auto eval = loader(data::SequentialSampler(9));
    Step step(training.ddp, training.optimizer, training.loss());
    Loop loop(group, {.epochs = 2});
    loop.on_step = [&](const StepReport& each) {
      if (group->rank() == 0) losses.push_back(each.loss);
    };
    loop.evaluate = [&] {
      const auto scope = step.evaluation();
      parallel::MeanMetric mean;
      for (auto& batch : eval) {
        const auto rows = static_cast<double>(batch[0].size(0));
        mean.add(training.loss()(batch.tensors).loss * rows, rows);
      }
      return mean.value(*group);
    };
    loop.on_evaluation = [&](const Evaluation& each) {
      if (group->rank() == 0) losses.push_back(each.metric);
    };
    loop.run(train, step);
  });
  return losses;
}

TEST(TrainLoop, GoesThroughLastBatchesOfWhichRanksHaveNoRows) {
  const std::vector<double> alone = train_to_the_last_sample(1, 0);
  EXPECT_EQ(alone.size(), 8u);
  for (const int ranks : {2, 4})
    for (const int workers : {0, 2})
      EXPECT_THAT(train_to_the_last_sample(ranks, workers),
                  ::testing::Pointwise(::testing::DoubleNear(1e-6), alone))
          << ranks << " ranks";
}

TEST(TrainStep, OfNoRowsOnAnyRankIsRefusedOnAll) {
  for (const int ranks : {1, 2})
    run_job(ranks, [&](const CommunicatorPtr& group) {
      LinearTraining training(group);
      const std::vector<double> before = training.weights();
      Step step(training.ddp, training.optimizer, training.loss());
      EXPECT_THAT(
          [&] {
            step({ones({0, 3}), ones({0, 2})});
          },
          ThrowsMessage<InvalidArgument>(
              AllOf(HasSubstr("a step's batch has "), HasSubstr("row"))));
      EXPECT_EQ(training.weights(), before);
      EXPECT_NO_THROW(step({ones({2, 3}), ones({2, 2})}));
    });
}

TEST(TrainStep, OfNoRowsOnAnyRankIsRefusedCapturedToo) {
  run_job(2, [](const CommunicatorPtr& group) {
    LinearTraining training(group);
    Step step(training.ddp, training.optimizer, training.loss(), {.capture = true});
    for (int i = 0; i < 6; ++i) {
      const std::int64_t rows = i == 0 || i == 5 ? group->rank() : 0;
      const auto call = [&] { return step({ones({rows, 3}), ones({rows, 2})}); };
      if (i == 0 || i == 5)
        EXPECT_NO_THROW(call());
      else
        EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr("no rows, on any rank")));
    }
  });
}

// All of a batch's targets may be ones that do not count: that is not the same.
TEST(TrainStep, OfARankWithoutRowsBesideRowsThatDoNotCountIsTaken) {
  run_job(2, [&](const CommunicatorPtr& group) {
    LinearTraining training(group);
    Step step(training.ddp, training.optimizer, [&](Inputs in) -> WeightedLoss {
      return {training.loss()(in).loss, scalar(0.0)};
    });
    const std::int64_t rows = group->rank() * 2;
    EXPECT_NO_THROW(step({ones({rows, 3}), ones({rows, 2})}));
  });
}

TEST(TrainStep, RefusesAnOptimizerOfAnotherModel) {
  run_job(1, [&](const CommunicatorPtr& group) {
    LinearTraining training(group), other(group);
    EXPECT_THAT([&] { Step(training.ddp, other.optimizer, training.loss()); },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr("parameter weight trains, but the optimizer does not have it")));
  });
}

TEST(TrainStep, SaysWhatIsWrongWithALoss) {
  run_job(1, [&](const CommunicatorPtr& group) {
    LinearTraining training(group);
    Step vector(training.ddp, training.optimizer, [&](Inputs in) { return training.ddp(in[0]); });
    EXPECT_THAT(
        [&] {
          vector({ones({4, 3})});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("not [4, 2] on cpu")));
    amp::GradScaler scaler;
    for (amp::GradScaler* const each : {&scaler, static_cast<amp::GradScaler*>(nullptr)}) {
      Step none(training.ddp, training.optimizer, [&](Inputs) { return Tensor(); },
                {.scaler = each});
      EXPECT_THAT(
          [&] {
            none({ones({4, 3})});
          },
          ThrowsMessage<InvalidArgument>(HasSubstr("not an undefined tensor")));
    }
  });
}

}  // namespace
}  // namespace lockstep::train
