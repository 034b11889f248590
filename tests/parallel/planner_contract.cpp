// Buckets that are planned by the times of the first steps, over any group.

#include <chrono>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PlannerContract);

// Buckets of one parameter, or planned from those.
DistributedDataParallelOptions planned_by(BucketPlanning plan) {
  return {.bucket_bytes = 1, .first_bucket_bytes = 1, .bucket_plan = plan};
}

// Which parameters lie in which bucket.
std::string layout_of(const Reducer& reducer) {
  std::ostringstream out;
  for (const Bucket& bucket : reducer.buckets()) {
    for (const std::size_t index : bucket.parameters) out << index << ' ';
    out << "| ";
  }
  return out.str();
}

// How the steps of a training are made, beside their plan.
struct PlannedTraining {
  DistributedDataParallelOptions options = {};
  std::function<void(Replica&)> prepare = {};
  bool accumulates = false, is_weighted = false, keeps_gradients = false, delays = false;
  bool one_is_late = false;
  std::vector<std::size_t> skipped = {};
  int without_data = -1;  // the step in which the last rank has no data
};

// Six steps. Returns the parameters afterwards, and all gradients on the way.
std::vector<double> train(Communicator& group, const PlannedTraining& how, BucketPlanning plan) {
  DistributedDataParallelOptions options = how.options;
  options.bucket_bytes = options.first_bucket_bytes = 1;
  options.bucket_plan = plan;
  Replica replica(make_net(7), share(group), options);
  if (how.prepare) how.prepare(replica);
  std::minstd_rand random(static_cast<unsigned>(group.rank() + 1));
  if (how.delays)
    replica.module().delay = [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    };
  if (how.one_is_late && group.rank() == group.size() - 1)
    replica.module().delay = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  optim::SGD optimizer(replica.parameters(), {.lr = 0.1});
  std::vector<double> values;
  for (int step = 0; step < 6; ++step) {
    const Batch whole = Batch::of_step(step, DType::f64, 24).part(group.rank(), group.size());
    const auto backward = [&](const Batch& batch) {
      const Tensor loss = loss_of(replica(batch.x, how.skipped), batch);
      how.is_weighted ? replica.backward(loss, 1.0 + group.rank()) : loss.backward();
    };
    if (how.accumulates) {
      const auto local = replica.no_sync();
      backward(whole.part(0, 2));
    }
    if (step == how.without_data && group.rank() == group.size() - 1)
      replica.backward_without_data();
    else
      backward(how.accumulates ? whole.part(1, 2) : whole);
    const std::vector<double> gradients = gradients_of(replica.module());
    values.insert(values.end(), gradients.begin(), gradients.end());
    optimizer.step();
    if (!how.keeps_gradients) optimizer.zero_grad();
  }
  EXPECT_EQ(replica.report().predicted.has_value(),
            plan == BucketPlanning::measured && group.size() > 1);
  expect_equal_replicas(group, replica.module());
  const std::vector<double> parameters = values_of(replica.module());
  values.insert(values.end(), parameters.begin(), parameters.end());
  return values;
}

// Host backends add up each element over the ranks, wherever it lies.
void expect_same_results(Communicator& group, const PlannedTraining& how) {
  const auto by_sizes = train(group, how, BucketPlanning::pytorch);
  const auto planned = train(group, how, BucketPlanning::measured);
  if (group.device().is_cpu())
    EXPECT_EQ(planned, by_sizes);
  else
    expect_close(planned, by_sizes, 1e-11, 1e-13);
}

TEST_P(PlannerContract, TrainsAsBucketsBySizesDo) {
  run([](Communicator& group) {
    const int count = group.size() > 1 ? 3 : -1;
    expect_same_results(group, {});
    expect_same_results(group, {.delays = true});
    expect_same_results(group, {.one_is_late = true});
    expect_same_results(group, {.accumulates = true});
    expect_same_results(group, {.keeps_gradients = true});
    expect_same_results(group, {.accumulates = true, .is_weighted = true, .delays = true});
    for (int step = 0; step < count; ++step)
      expect_same_results(group, {.is_weighted = true, .without_data = step});
    expect_same_results(group, {.options = {.static_graph = true}, .skipped = {1}});
    expect_same_results(group, {.prepare = [](Replica& replica) {
                          replica.register_comm_hook(compress_buckets(DType::bf16));
                        }});
  });
}

TEST_P(PlannerContract, LaysBucketsOutOnceMoreAndAlikeOnAllRanks) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    for (std::uint32_t seed = 1; seed <= 4; ++seed) {
      Replica replica(make_net(7), share(group), planned_by(BucketPlanning::measured));
      std::minstd_rand random(seed * 97 + static_cast<std::uint32_t>(group.rank()));
      replica.module().delay = [&] {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      };
      std::vector<std::string> layouts;
      for (int step = 0; step < 6; ++step) {
        EXPECT_EQ(replica.report().predicted.has_value(), step >= 3);
        const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
        loss_of(replica(batch.x), batch).backward();
        layouts.push_back(layout_of(replica.reducer()));
        // Also behind the one whose end lays the buckets out anew.
        EXPECT_GT(replica.report().achieved.communication, 0) << "step " << step;
        for (const std::string& other : comm::all_gather_bytes(group, layouts.back()))
          EXPECT_EQ(other, layouts.back());
      }
      EXPECT_EQ(layouts[1], layouts[0]);
      for (std::size_t step = 3; step < layouts.size(); ++step)
        EXPECT_EQ(layouts[step], layouts[2]) << "step " << step;
      const CommunicationReport report = replica.report();
      ASSERT_TRUE(report.predicted);
      EXPECT_GT(report.predicted->cost.seconds(1024), 0);
      for (const HiddenCommunication& other :
           {report.predicted->now, report.predicted->by_sizes_alone})
        EXPECT_LE(report.predicted->at_best.exposed, other.exposed);
      EXPECT_EQ(report.buckets.size(), replica.reducer().buckets().size());
      for (const BucketReport& bucket : report.buckets) {
        EXPECT_LE(bucket.achieved.start, bucket.achieved.end);
        EXPECT_FALSE(bucket.last.empty());
        EXPECT_TRUE(bucket.predicted);
      }
    }
  });
}

TEST_P(PlannerContract, IsDoneBeforeAStepIsCaptured) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const auto train = [&](bool captures, int warm_up) {
      Replica replica(make_net(1), group, planned_by(BucketPlanning::measured));
      optim::SGD optimizer(replica.parameters(), {.lr = 0.1});
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        const Tensor loss = mse_loss(replica(in[0]), in[1]);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss.detach()};
      };
      StepGraph graph(step, {.num_warmup_iters = warm_up, .group = group});
      std::string reason;
      int replays = 0;
      for (int i = 0; i < 8; ++i) {
        const Batch own = Batch::of_step(i).part(group->rank(), group->size());
        const std::vector<Tensor> in{own.x, own.target};
        captures ? graph(in) : step(in);
        replays += graph.replayed();
        if (reason.empty()) reason = graph.fallback_reason();
      }
      if (captures && (warm_up == 3 || group->size() == 1)) {
        EXPECT_EQ(replays, 8 - warm_up) << reason;
      } else if (captures) {
        EXPECT_NE(reason.find("measures its first steps"), std::string::npos) << reason;
      }
      return values_of(replica.module());
    };
    const auto eager = train(false, 1);
    for (const int warm_up : {1, 3}) expect_close(train(true, warm_up), eager, 1e-11, 1e-13);
  });
}

TEST_P(PlannerContract, IsRefusedWhereBucketsMustStayOrOrdersChange) {
  run([](Communicator& group) {
    auto options = planned_by(BucketPlanning::measured);
    options.zero_stage = 1;
    EXPECT_NE(message_of([&] { Replica(make_net(1), share(group), options); }).find("(ZeRO)"),
              std::string::npos);
    options.zero_stage = 0;
    options.find_unused_parameters = true;
    EXPECT_NE(message_of([&] {
                Replica(make_net(1), share(group), options);
              }).find("find_unused_parameters"),
              std::string::npos);
  });
}

// Steps of which one rank, the last, has its batches late.
template <class Module>
void train_with_a_straggler(Communicator& group, DistributedDataParallel<Module>& replica,
                            bool is_weighted, bool accumulates) {
  for (int step = 0; step < 8; ++step) {
    const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
    if (group.rank() == group.size() - 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
    if (accumulates) {
      const auto local = replica.no_sync();
      loss_of(replica(batch.x), batch).backward();
    }
    const Tensor loss = loss_of(replica(batch.x), batch);
    is_weighted ? replica.backward(loss, 1.0) : loss.backward();
    for (Tensor& parameter : replica.parameters()) parameter.set_grad({});
  }
}

void expect_the_last_rank_to_be_named(Communicator& group, const StragglerReport& report,
                                      std::size_t steps) {
  std::ostringstream text;
  text << report;
  for (const std::string& other : comm::all_gather_bytes(group, text.str()))
    EXPECT_EQ(other, text.str());
  if (group.size() == 1) {
    EXPECT_EQ(text.str(), "no step was timed\n");
    return;
  }
  EXPECT_EQ(report.steps, steps);
  // By the simulated GPU's clock collectives begin once all ranks are there.
  if (group.device().is_cuda()) return;
  const int slow = group.size() - 1;
  EXPECT_EQ(report.straggler(), slow) << report;
  EXPECT_GT(report.share(slow), 0.3) << report;
  for (int rank = 0; rank < slow; ++rank)
    EXPECT_GT(report.ranks[static_cast<std::size_t>(rank)].waited, 0.1) << report;
  EXPECT_NE(text.str().find("rank " + std::to_string(slow) + " held the others up for "),
            std::string::npos)
      << report;
}

TEST_P(PlannerContract, NamesTheRankThatTheOthersWaitFor) {
  run([](Communicator& group) {
    for (const int zero_stage : {0, 3}) {
      Replica replica(make_net(7), share(group), {.zero_stage = zero_stage});
      for (const bool is_weighted : {false, true})
        train_with_a_straggler(group, replica, is_weighted, false);
      // The last one has not ended.
      expect_the_last_rank_to_be_named(group, replica.stragglers(), 15);
    }
  });
}

// Where the others wait in the forward, or in a backward that only adds up, for its statistics.
TEST_P(PlannerContract, NamesTheRankThatSynchronizedNormsWaitFor) {
  run([](Communicator& group) {
    for (const bool accumulates : {false, true}) {
      const auto net = nn::make<NormNet>();
      net->to(device_of_rank);
      nn::convert_sync_batchnorm(*net, share(group));
      DistributedDataParallel<NormNet> replica(net, share(group));
      train_with_a_straggler(group, replica, false, accumulates);
      expect_the_last_rank_to_be_named(group, replica.stragglers(), 7);
    }
  });
}

// Where a checkpointed norm runs again in a backward that only adds up.
TEST_P(PlannerContract, NamesTheRankThatRecomputedNormsWaitFor) {
  run([](Communicator& group) {
    const auto net = nn::make<NormNet>();
    net->to(device_of_rank);
    nn::convert_sync_batchnorm(*net, share(group));
    DistributedDataParallel<NormNet> replica(net, share(group));
    for (int step = 0; step < 8; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      net->when_recomputed = [&] {
        if (group.rank() == group.size() - 1)
          std::this_thread::sleep_for(std::chrono::milliseconds(40));
      };
      {
        const auto local = replica.no_sync();
        loss_of(replica(batch.x), batch).backward();
      }
      net->when_recomputed = nullptr;
      loss_of(replica(batch.x), batch).backward();
      for (Tensor& parameter : replica.parameters()) parameter.set_grad({});
    }
    expect_the_last_rank_to_be_named(group, replica.stragglers(), 7);
  });
}

TEST_P(PlannerContract, KeepsTheLastStepsOnly) {
  run([](Communicator& group) {
    Replica replica(make_net(7), share(group));
    for (int step = 0; step < static_cast<int>(StepTimes::most_steps) + 3; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
    }
    const StragglerReport report = replica.stragglers();
    EXPECT_EQ(report.steps, group.size() > 1 ? StepTimes::most_steps : 0u);
    double held_up = 0;
    for (const auto& rank : report.ranks) held_up += rank.held_up;
    EXPECT_LE(held_up, report.seconds);
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
