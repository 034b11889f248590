#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/ranks_differ.hpp"
#include "checkpoint/thread_job.hpp"

// Ranks that load otherwise than the others, and what all of them see of it.

namespace lockstep {
namespace {

using checkpoint::Manager, checkpoint::ManagerOptions, checkpoint::Piece, checkpoint::TensorState,
    checkpoint::Values, checkpoint::ValueState;
using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not, ::testing::StartsWith;
namespace fs = std::filesystem;
using testing::run_job, testing::TemporaryFolder;

TEST_F(RanksDiffer, OtherStatesAreRefusedBeforeTheFirstStepByWhoLooksForACheckpoint) {
  run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t value = 1;
    Manager manager(folder / "run", group);
    if (group->rank() == 1) manager.add("value", value);
    EXPECT_EQ(error_of([&] { manager.load_newest(); }),
              other_states("'value' was added on rank 1 but not on rank 0"));
  });
}

TEST_F(RanksDiffer, AStateThatOneRankRefusesIsRefusedOnAll) {
  run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t loads = 0;
    Manager manager(folder / "run", group);
    manager.add("state", ValueState{.values =
                                        [] {
                                          return Values{{"value", 1}};
                                        },
                                    .load =
                                        [&](const Values&) {
                                          ++loads;
                                          if (group->rank() == 1 && loads == 1)
                                            throw CorruptData("rank 1 wants none of it");
                                        }});
    for (const std::int64_t step : {1, 2}) manager.save(step);
    ASSERT_TRUE(manager.wait());
    EXPECT_EQ(manager.load_newest(), 1);  // not one rank step 1 and the other step 2
    loads = 0;
    EXPECT_THAT(error_of([&] { manager.load(folder / "run/step-2"); }),
                HasSubstr("rank 1 wants none of it"));
  });
}

TEST_F(RanksDiffer, AStateThatOneRankRefusesKeepsNoRankInThoseBehindIt) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto net = nn::make<OneWeight>(Shape{4});
    DistributedDataParallel ddp(net, group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    DiLoCo averaging(ddp, optimizer);
    bool refuses = false;
    Tensor weight = zeros({3});
    Manager manager(folder / "run", group);
    manager.add(
        "weight",
        TensorState{.pieces = [&] { return std::vector<Piece>{{.name = "w", .tensor = weight}}; },
                    .load =
                        [&](const NamedTensors&) {
                          if (refuses) throw CorruptData("rank 1 wants none of it");
                        }});
    manager.add("averaging", averaging);
    manager.save(1);
    ASSERT_TRUE(manager.wait()) << manager.error();
    EXPECT_EQ(manager.load_newest(), 1);
    refuses = group->rank() == 1;
    EXPECT_THAT(error_of([&] { manager.load_newest(); }), HasSubstr("rank 1 wants none of it"));
  });
}

TEST_F(RanksDiffer, LoadsOfDifferentCheckpointsAreRefused) {
  run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t value = 0;
    Tensor weight = zeros({3});
    Manager manager(folder / "run", group);
    manager.add("value", value);
    manager.add(
        "weight",
        TensorState{.pieces = [&] { return std::vector<Piece>{{.name = "w", .tensor = weight}}; },
                    .load = [&](const NamedTensors& all) { weight.copy_(all[0].second); }});
    for (const std::int64_t step : {1, 2}) {
      value = step;
      weight.fill_(static_cast<double>(step));
      manager.save(step);
    }
    ASSERT_TRUE(manager.wait());
    const std::string name = detail::concat("run/step-", group->rank() + 1);
    EXPECT_THAT(error_of([&] { manager.load(folder / name); }), HasSubstr("rank 1"));
    EXPECT_EQ(value, 2);
    EXPECT_EQ(weight.to_vector<float>()[0], 2);
  });
}

TEST_F(RanksDiffer, EachRankGetsItsOwnTensorsBack) {
  const auto fill = [](Tensor tensor, int rank) {
    tensor.copy_(arange(tensor.numel(), tensor.options()).reshape(tensor.shape()) + 100.0 * rank);
  };
  const auto train = [&](int ranks, bool saves) {
    run_job(ranks, [&](const CommunicatorPtr& group) {
      Tensor states = zeros({5, 3}), done = zeros({5}, {.dtype = DType::u8});
      Tensor across = zeros({4, 6}).transpose(0, 1), nothing = zeros({0, 3});
      Manager manager(folder / "run", group);
      manager.add(
          "replay",
          checkpoint::state_of_each_rank(
              {{"states", states}, {"done", done}, {"across", across}, {"nothing", nothing}},
              *group));
      if (saves) {
        for (Tensor each : {states, done, across}) fill(each, group->rank());
        manager.save(1);
        ASSERT_TRUE(manager.wait()) << manager.error();
        for (Tensor each : {states, done, across}) each.fill_(7.0);
      }
      EXPECT_EQ(manager.load_newest(), 1);
      const double first = 100.0 * (group->rank() % 2);
      EXPECT_EQ(states.to_vector<float>()[0], first);
      EXPECT_EQ(states.to_vector<float>()[14], first + 14);
      EXPECT_EQ(done.to_vector<std::uint8_t>()[4], first + 4);
      EXPECT_EQ(across[5][3].item(), first + 23);
    });
  };
  train(2, true);
  train(2, false);
  train(3, false);
  train(1, false);
}

TEST_F(RanksDiffer, TensorsOfEachRankMustBeOfOneSize) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Tensor states = zeros({5});
    Manager manager(folder / "run", group);
    manager.add("replay", checkpoint::state_of_each_rank({{"states", states}}, *group));
    manager.save(1);
    ASSERT_TRUE(manager.wait()) << manager.error();
    Tensor larger = zeros({6});
    Manager other(folder / "other", group);
    other.add("replay", checkpoint::state_of_each_rank({{"states", larger}}, *group));
    EXPECT_THAT(error_of([&] { other.load(folder / "run/step-1"); }),
                HasSubstr("was saved with shape [5] and f32 on each rank, and has [6]"));
  });
}

TEST_F(RanksDiffer, AnotherCheckpointOfTheSameNameIsNotTakenForDamage) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto net = nn::make<OneWeight>(Shape{1 << 19});  // of which each rank reads a half
    for (const char* run : {"one", "other"}) {
      const NoGradGuard no_recording;
      Tensor(net->weight).add_(1.0);
      Manager manager(folder / run, group);
      manager.add("model", net);
      manager.save(1);
      ASSERT_TRUE(manager.wait()) << manager.error();
    }
    Manager manager(folder / "third", group);
    manager.add("model", net);
    const std::string own = group->rank() == 0 ? "one/step-1" : "other/step-1";
    EXPECT_EQ(error_of([&] { manager.load(folder / own); }),
              "rank 1: " + (folder / "other/step-1").string() +
                  " is not the checkpoint that rank 0 loads: give all ranks the same folder");
    EXPECT_EQ(manager.load(folder / "one/step-1"), 1);
  });
}

TEST_F(RanksDiffer, LoadsIntoOtherStatesAreRefused) {
  run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t value = 1;
    Tensor weight = zeros({3});
    const auto state_of_weight = [&] {
      return TensorState{
          .pieces = [&] { return std::vector<Piece>{{.name = "w", .tensor = weight}}; },
          .load = [](const NamedTensors&) {}};
    };
    Manager manager(folder / "run", group);
    manager.add("value", value);
    manager.add("weight", state_of_weight());
    manager.save(1);
    ASSERT_TRUE(manager.wait());
    Manager other(folder / "other", group);
    other.add("value", value);
    if (group->rank() == 0) other.add("weight", state_of_weight());
    EXPECT_THAT(error_of([&] { other.load(folder / "run/step-1"); }), HasSubstr("rank 1"));
  });
}

TEST_F(RanksDiffer, AShardTakesNoTensorOfAnotherModelThatHasItsSize) {
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto steps = [&](auto& ddp, optim::Optimizer& optimizer, std::int64_t size) {
      ddp(ones({size})).backward();
      optimizer.step();
      optimizer.zero_grad();
    };
    auto small = nn::make<OneWeight>(Shape{16});
    DistributedDataParallel one(small, group, {.zero_stage = 3});
    optim::AdamW own(one.named_parameters(), {});
    steps(one, own, 16);
    {
      Manager manager(folder / "run", group);
      manager.add("model", one);
      manager.add("optimizer", own, one);
      manager.save(1);
      ASSERT_TRUE(manager.wait()) << manager.error();
    }
    auto large = nn::make<OneWeight>(Shape{32});  // of which each rank has 16
    DistributedDataParallel other(large, group, {.zero_stage = 3});
    optim::AdamW its(other.named_parameters(), {});
    steps(other, its, 32);
    ASSERT_EQ(other.named_parameters()[0].second.numel(), 16);
    Manager model(folder / "model", group), optimizer(folder / "optimizer", group);
    model.add("model", other);
    EXPECT_THAT(error_of([&] { model.load(folder / "run/step-1"); }),
                HasSubstr("weight: f32 [16] there, f32 [32] here"));
    optimizer.add("optimizer", its, other);
    EXPECT_THAT(error_of([&] { optimizer.load(folder / "run/step-1"); }),
                HasSubstr("weight.exp_avg: [16] there, [32] here"));
  });
}

TEST_F(RanksDiffer, AShardTakesNoTensorOfAnotherShape) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto square = nn::make<OneWeight>(Shape{4, 4}), flat = nn::make<OneWeight>(Shape{32});
    {
      Manager manager(folder / "run", group);
      manager.add("model", square);
      manager.save(1);
      ASSERT_TRUE(manager.wait()) << manager.error();
    }
    DistributedDataParallel ddp(flat, group, {.zero_stage = 3});  // each rank has 16 of 32
    Manager manager(folder / "other", group);
    manager.add("model", ddp);
    EXPECT_THAT(error_of([&] { manager.load(folder / "run/step-1"); }),
                HasSubstr("weight: f32 [4, 4] there"));
  });
}

TEST_F(RanksDiffer, AnOptimizerOfShardsIsRefusedWithoutItsReplica) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(4, 4);
    DistributedDataParallel ddp(model, group, {.zero_stage = 1});
    optim::AdamW optimizer(ddp.named_parameters(), {});
    Manager manager(folder / "run", group);
    EXPECT_THAT(error_of([&] { manager.add("optimizer", optimizer); }), HasSubstr("replica"));
    manager.add("optimizer", optimizer, ddp);
  });
}

}  // namespace
}  // namespace lockstep
