// Checkpoints between the micro-batches of a step: gradients that are added up come back.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::run_job, testing::TemporaryFolder;

struct Two : nn::Module {
  Two() : a(this, "a", 5, 4), b(this, "b", 5, 4) {
    const NoGradGuard no_recording;
    double value = 0.1;
    for (const auto& [name, parameter] : named_parameters())
      Tensor(parameter).copy_(
          affine(arange(parameter.numel(), {.dtype = DType::f32}), 0.03, value *= -2)
              .reshape(parameter.shape()));
  }
  /// @param uses_b whether its parameters get a gradient.
  Tensor forward(const Tensor& x, bool uses_b) const { return uses_b ? a(x) + b(x) : a(x); }

  nn::Child<nn::Linear> a, b;
};

struct AccumulationCase {
  std::string name = {};
  DistributedDataParallelOptions replica = {};
  bool is_weighted = false, rank_1_leaves_out_b = false, trains_alone = false;
  bool is_in_evaluation = false;  ///< as in fine-tuning with frozen statistics
  int rank_with_one = -1;         ///< makes but the last micro-batch of a step
};

constexpr std::int64_t batches = 12, saved_batch = 5;

/// Steps of three micro-batches by hand, which are saved behind the second one of the second step.
std::vector<std::vector<float>> train_accumulating(int ranks, const std::filesystem::path& folder,
                                                   const AccumulationCase& how, bool goes_on) {
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(ranks));
  run_job(ranks, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    if (how.is_in_evaluation) model->eval();
    DistributedDataParallel ddp(model, group, how.replica);
    optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.1});
    std::optional<LocalSGD> averaging;
    if (how.trains_alone) averaging.emplace(ddp, optimizer, LocalSGDOptions{.sync_every = 2});
    checkpoint::Manager checkpoints(folder, group);
    if (averaging) checkpoints.add("averaging", *averaging);
    checkpoints.add("model", ddp);
    checkpoints.add("optimizer", optimizer, ddp);
    std::int64_t batch = 0;
    checkpoints.add("batch", batch);
    if (goes_on) checkpoints.load_newest();
    while (batch < batches) {
      const std::int64_t number = batch++;
      const bool ends_step = number % 3 == 2;
      const auto backward = [&] {
        const double x = 0.1 * static_cast<double>(7 * number % 5 + group->rank());
        const bool uses_b = !how.rank_1_leaves_out_b || group->rank() == 0;
        const Tensor loss = ddp(full({2, 5}, x), uses_b).square().mean();
        if (how.is_weighted)
          ddp.backward(loss, 1.0 + static_cast<double>((number + group->rank()) % 3));
        else
          loss.backward();
      };
      if (ends_step) {
        backward();
      } else if (group->rank() != how.rank_with_one) {
        const auto local = ddp.no_sync();
        backward();
      }
      if (batch == saved_batch && !goes_on) checkpoints.save(batch);
      if (!ends_step) continue;
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_TRUE(checkpoints.wait()) << checkpoints.error();
    const auto whole = ddp.whole_parameters();
    auto& own = weights[static_cast<std::size_t>(group->rank())];
    for (const Tensor& parameter : model->parameters())
      std::ranges::copy(parameter.to_vector<float>(), std::back_inserter(own));
  });
  return weights;
}

const std::vector<AccumulationCase>& cases() {
  static const std::vector<AccumulationCase> all{
      {.name = "plain"},
      {.name = "weights", .is_weighted = true},
      {.name = "ZeRO 1", .replica = {.zero_stage = 1}},
      {.name = "ZeRO 2, weights", .replica = {.zero_stage = 2}, .is_weighted = true},
      {.name = "ZeRO 3", .replica = {.zero_stage = 3}},
      {.name = "a rank without gradients of some parameters",
       .replica = {.find_unused_parameters = true},
       .rank_1_leaves_out_b = true},
      {.name = "local SGD", .trains_alone = true},
      {.name = "a model in evaluation", .is_in_evaluation = true},
      {.name = "rank 0 without gradients", .rank_with_one = 0},
      {.name = "rank 1 without gradients", .rank_with_one = 1},
      {.name = "ZeRO 2, rank 0 without", .replica = {.zero_stage = 2}, .rank_with_one = 0},
  };
  return all;
}

TEST(Accumulation, GoesOnBitwiseBetweenMicroBatches) {
  for (const AccumulationCase& how : cases()) {
    SCOPED_TRACE(how.name);
    const TemporaryFolder folder;
    const auto whole = train_accumulating(2, folder / "run", how, false);
    EXPECT_EQ(train_accumulating(2, folder / "run", how, true), whole);
  }
}

TEST(Accumulation, OtherNumbersOfRanksGoOnFromTheAverage) {
  const TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  train_accumulating(2, folder / "run", {}, false);
  run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    DistributedDataParallel ddp(model, group);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", ddp);
    checkpoints.load_newest();
    ASSERT_TRUE(ddp.replica().has_accumulated());
    const auto of = [&](int rank) {
      // Micro-batches 3 and 4 through the weights behind the first step.
      auto alike = nn::make<Two>();
      alike->load_state_dict(model->state_dict());
      for (const std::int64_t number : {3, 4})
        alike->forward(full({2, 5}, 0.1 * static_cast<double>(7 * number % 5 + rank)), true)
            .square()
            .mean()
            .backward();
      return alike->a->weight.grad();
    };
    const Tensor mean = (of(0) + of(1)) / 2.0;
    EXPECT_TRUE(allclose(model->a->weight.grad(), mean));
  });
  set_log_sink(nullptr);
}

TEST(Accumulation, ARankWithoutGradientsGetsNone) {
  const TemporaryFolder folder;
  const AccumulationCase how{.rank_with_one = 1};
  train_accumulating(2, folder / "run", how, false);
  run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    DistributedDataParallel ddp(model, group);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", ddp);
    checkpoints.load_newest();
    EXPECT_EQ(ddp.replica().has_accumulated(), group->rank() == 0);
    EXPECT_EQ(model->a->weight.grad().defined(), group->rank() == 0);
  });
}

TEST(Accumulation, AForwardWhoseBackwardIsLeftOutLosesNothing) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    DistributedDataParallel ddp(model, group);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", ddp);
    {
      const auto local = ddp.no_sync();
      ddp(ones({2, 5}), true).sum().backward();
    }
    ddp(ones({2, 5}), true);  // its loss was no number, say
    const Tensor added = model->a->weight.grad().clone();
    checkpoints.save(1);
    for (const Tensor& parameter : model->parameters()) Tensor(parameter).set_grad({});
    checkpoints.load_newest();
    EXPECT_TRUE(equal(model->a->weight.grad(), added));
  });
}

TEST(Accumulation, WeightsNeedAsManyRanks) {
  const TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  train_accumulating(2, folder / "run", {.is_weighted = true}, false);
  run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    DistributedDataParallel ddp(model, group);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", ddp);
    EXPECT_THAT([&] { checkpoints.load_newest(); },
                ::testing::ThrowsMessage<InvalidArgument>(
                    ::testing::HasSubstr("of 2 ranks: it goes on on as many, not on 1")));
  });
  set_log_sink(nullptr);
}

TEST(Accumulation, AModuleAloneLeavesTheGradientsOut) {
  const TemporaryFolder folder;
  train_accumulating(2, folder / "run", {}, false);
  run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", model);
    EXPECT_EQ(checkpoints.load_newest(), saved_batch);
  });
}

TEST(Accumulation, ReproducibleReductionsRefuseASave) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    DistributedDataParallel ddp(model, group,
                                {.reduction = GradientReduction::reproducible, .micro_batches = 4});
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", ddp);
    {
      const auto local = ddp.no_sync();
      ddp(ones({2, 5}), true).sum().backward();
    }
    EXPECT_THAT([&] { checkpoints.save(1); },
                ::testing::ThrowsMessage<InvalidArgument>(
                    ::testing::HasSubstr("save behind the step's last backward")));
    ddp(ones({2, 5}), true).sum().backward();
  });
}

TEST(Accumulation, AStateBetweenStepsDropsWhatHasAddedUpSince) {
  for (const bool is_reproducible : {false, true})
    for (const int stage : is_reproducible ? std::vector{0} : std::vector{0, 1, 2, 3}) {
      const TemporaryFolder folder;
      run_job(2, [&](const CommunicatorPtr& group) {
        DistributedDataParallelOptions options{.zero_stage = stage};
        if (is_reproducible) {
          options.reduction = GradientReduction::reproducible;
          options.micro_batches = 4;  // two of each rank
        }
        DistributedDataParallel ddp(nn::make<Two>(), group, options);
        optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
        checkpoint::Manager checkpoints(folder / "run", group);
        checkpoints.add("model", ddp);
        checkpoints.add("optimizer", optimizer, ddp);
        checkpoints.add("generator", default_generator());
        checkpoints.save(1);
        EXPECT_TRUE(checkpoints.wait()) << checkpoints.error();
        const auto backward = [&](double x) {
          ddp(full({2, 5}, x), true).square().mean().backward();
        };
        const auto step = [&] {
          if (is_reproducible) {
            const auto local = ddp.no_sync();
            backward(0.2);
          }
          backward(0.3);
          optimizer.step();
          optimizer.zero_grad();
          std::vector<float> weights;
          for (const auto& [name, parameter] : ddp.named_parameters())
            std::ranges::copy(parameter.to_vector<float>(), std::back_inserter(weights));
          return weights;
        };
        const std::vector<float> clean = step();
        checkpoints.load_newest();
        {
          const auto local = ddp.no_sync();
          backward(0.7);
        }
        EXPECT_TRUE(ddp.replica().has_accumulated());
        checkpoints.load_newest();
        EXPECT_FALSE(ddp.replica().has_accumulated());
        EXPECT_EQ(step(), clean) << "stage " << stage << ", reproducible " << is_reproducible;
      });
    }
}

TEST(Accumulation, GradientsThatAreLeftAreSavedToo) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<Two>();
    DistributedDataParallel ddp(model, group);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", ddp);
    for (const std::int64_t step : {1, 2}) {  // cleared at the top of a step
      model->zero_grad();
      {
        const auto local = ddp.no_sync();
        ddp(ones({2, 5}), true).sum().backward();
      }
      checkpoints.save(step);
      EXPECT_TRUE(checkpoints.wait()) << checkpoints.error();
    }
  });
}

}  // namespace
}  // namespace lockstep
