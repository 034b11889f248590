#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/ranks_differ.hpp"
#include "checkpoint/thread_job.hpp"

// Ranks that have other values of what they save alike.

namespace lockstep {
namespace {

using checkpoint::Manager;
using ::testing::AllOf, ::testing::HasSubstr;
using testing::run_job;

// Each rank writes a part of what all have alike: of values of their own it would be a mixture.
TEST_F(RanksDiffer, ValuesOfATensorOrAModuleAreRefusedOnAllRanks) {
  for (const bool of_module : {false, true})
    run_job(2, [&](const CommunicatorPtr& group) {
      Manager manager(folder / "run", group);
      Tensor own = full({5000}, static_cast<double>(group->rank()));
      auto net = nn::make<OneWeight>(Shape{5000});
      const NoGradGuard no_recording;
      Tensor(net->weight).copy_(own);
      if (of_module)
        manager.add("target", net);
      else
        manager.add("target", own);
      manager.save(1);
      EXPECT_FALSE(manager.wait());
      EXPECT_THAT(manager.error(), AllOf(HasSubstr("'target with values of fingerprint"),
                                         HasSubstr("on rank 1"), HasSubstr("load_on_new_rank")));
      own.fill_(1.0);
      Tensor(net->weight).fill_(1.0);
      manager.save(2);
      EXPECT_TRUE(manager.wait()) << manager.error();
    });
}

// Nobody keeps buffers alike, nor averages of them, where no wrapper is given.
TEST_F(RanksDiffer, BuffersOfAModuleAloneAreThoseOfRank0) {
  struct Counts : nn::Module {
    Counts() : weight(this, "weight", ones({4})), seen(this, "seen", zeros({1 << 16})) {}
    nn::Parameter weight;
    nn::Buffer seen;
  };
  run_job(2, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group);
    auto net = nn::make<Counts>();
    const NoGradGuard no_recording;
    Tensor(net->seen).fill_(group->rank() + 1);
    optim::WeightAverage average(NamedTensors{{"weight", net->weight}, {"seen", net->seen}});
    average.update();
    manager.add("model", net);
    manager.add("average", average);
    manager.save(1);
    ASSERT_TRUE(manager.wait()) << manager.error();
    Tensor(net->seen).fill_(7);
    EXPECT_EQ(manager.load_newest(), 1);
    EXPECT_EQ(Tensor(net->seen).sum().item(), 1 << 16);
    for (const auto& [name, tensor] : average.state_dict())
      EXPECT_EQ(tensor.sum().item(), name == "seen" ? 1 << 16 : name == "weight" ? 4 : 1) << name;
  });
}

TEST_F(RanksDiffer, StatesOfAnOptimizerOrAnAverageAreRefusedOnAllRanks) {
  for (const bool of_average : {false, true})
    run_job(2, [&](const CommunicatorPtr& group) {
      Manager manager(folder / "run", group);
      auto net = nn::make<OneWeight>(Shape{5000});
      Tensor weight = net->weight;
      optim::Adam optimizer(net->named_parameters(), {.lr = 0.0});
      optim::WeightAverage average(net->named_parameters());
      weight.set_grad(full({5000}, group->rank() + 1.0));
      if (of_average) {
        const NoGradGuard no_recording;
        weight.fill_(group->rank() + 1.0);
        average.update();
        weight.fill_(1.0);
        manager.add("target", average);
      } else {
        optimizer.step();
        manager.add("target", optimizer);
      }
      manager.save(1);
      EXPECT_FALSE(manager.wait());
      EXPECT_THAT(manager.error(), AllOf(HasSubstr("values of fingerprint"),
                                         HasSubstr("add(\"optimizer\", optimizer, ddp)")));
    });
}

TEST_F(RanksDiffer, AnAverageIsOfTheSameWeightsWhereOneRankHasFrozenThemSince) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group);
    auto net = nn::make<OneWeight>(Shape{1 << 16});
    optim::WeightAverage average(net->named_parameters());
    average.update();
    if (group->rank() == 1) Tensor(net->weight).set_requires_grad(false);
    manager.add("average", average);
    manager.save(1);
    EXPECT_TRUE(manager.wait()) << manager.error();
  });
}

TEST_F(RanksDiffer, WeightsOfAReplicaThatAveragesNowAndThenAreRefusedAlone) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group);
    auto net = nn::make<OneWeight>(Shape{5000});
    DistributedDataParallel ddp(net, group);
    const NoGradGuard no_recording;
    Tensor(net->weight).fill_(group->rank());
    manager.add("model", net);
    manager.save(1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("values of fingerprint"));
  });
}

TEST_F(RanksDiffer, WhatOneStateThrowsAsItIsComparedIsToldToAll) {
  for (const bool is_gone : {false, true})
    run_job(2, [&](const CommunicatorPtr& group) {
      Manager manager(folder / "run", group);
      Tensor own = ones({8});
      const bool fails = group->rank() == 1;
      if (is_gone)
        manager.add("target", own);
      else
        manager.add("target", checkpoint::TensorState{
                                  .pieces = [] { return std::vector<checkpoint::Piece>(); },
                                  .load = [](const NamedTensors&) {},
                                  .told = [fails]() -> std::string {
                                    if (fails) throw std::runtime_error("it is\nundefined");
                                    return "";
                                  }});
      if (fails) own = {};
      const std::string thrown = error_of([&] { manager.save(1); });
      EXPECT_FALSE(manager.wait());
      EXPECT_THAT(thrown + manager.error(), HasSubstr("undefined"));
    });
}

}  // namespace
}  // namespace lockstep
