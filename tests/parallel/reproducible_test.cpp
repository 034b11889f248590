// Gradients whose bits depend on neither the number of ranks nor the buckets.

#include <gmock/gmock.h>

#include "comm/groups.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/optim.hpp"
#include "parallel/one_rank_alone.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

using Options = DistributedDataParallelOptions;

constexpr int micro_batches = 8, reproducible_steps = 12;

Options reproducible(Options options = {}) {
  options.reduction = GradientReduction::reproducible;
  options.micro_batches = micro_batches;
  return options;
}

/// How a training differs from the plain one.
struct Training {
  Options options = {};
  bool is_weighted = false, skips = false, drops = false;
};

/// Hash of the parameters after some clipped steps of AdamW.
std::size_t hash_after(int ranks, const Training& training) {
  std::size_t hash = 0;
  comm::run_ranks(ranks, [&](Communicator& group) {
    manual_seed(3);
    Replica replica(make_net(7, DType::f32), share(group), reproducible(training.options));
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
    const int own = micro_batches / group.size();
    for (int step = 0; step < reproducible_steps; ++step) {
      const Batch batch = Batch::of_step(step, DType::f32, 5 * micro_batches);
      for (int k = 0; k < own; ++k) {
        const int index = group.rank() * own + k;
        const Batch part = batch.part(index, micro_batches);
        std::optional<Replica::NoSync> local;
        if (k + 1 < own) local.emplace(replica.no_sync());
        // Layer 1 takes part in some micro-batches, layer 2 in none of the first steps.
        std::vector<std::size_t> skipped;
        if (training.skips && (index + step) % 3 == 0) skipped.push_back(1);
        if (training.skips && step < 4) skipped.push_back(2);
        Tensor y = replica(part.x, skipped);
        if (training.drops) y = dropout(y, 0.5, true);
        const Tensor loss = loss_of(y, part);
        if (training.is_weighted)
          replica.backward(loss, 0.1 + 0.7 * index);
        else
          loss.backward();
      }
      optim::clip_grad_norm_(replica.parameters(), 0.05);
      optimizer.step();
      optimizer.zero_grad();
    }
    expect_equal_replicas(group, replica.module());
    if (group.rank() == 0) hash = hash_of(replica.module());
  });
  return hash;
}

void expect_same_hashes(Training training) {
  const std::size_t expected = hash_after(1, training);
  for (const int ranks : {1, 2, 4, 8})
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 10, std::size_t{25} << 20}) {
      training.options.bucket_bytes = training.options.first_bucket_bytes = bytes;
      EXPECT_EQ(hash_after(ranks, training), expected) << ranks << " ranks, buckets of " << bytes;
    }
}

TEST(ReproducibleReduction, HasTheSameBitsOnAnyNumberOfRanksAndAnyBuckets) {
  expect_same_hashes({});
}

TEST(ReproducibleReduction, HasTheSameBitsWithAMeasuredPlan) {
  const std::size_t expected = hash_after(1, {});
  Training measured{.options = {.bucket_bytes = 1, .first_bucket_bytes = 1}};
  measured.options.bucket_plan = BucketPlanning::measured;
  for (const int ranks : {1, 2, 4}) EXPECT_EQ(hash_after(ranks, measured), expected) << ranks;
}

TEST(ReproducibleReduction, HasTheSameBitsWithUnequalWeights) {
  expect_same_hashes({.is_weighted = true});
}

TEST(ReproducibleReduction, HasTheSameBitsWithParametersThatSomeMicroBatchesLeaveOut) {
  expect_same_hashes({.options = {.find_unused_parameters = true}, .skips = true});
}

TEST(ReproducibleReduction, HasTheSameBitsWithAStaticGraph) {
  EXPECT_EQ(hash_after(1, {.options = {.static_graph = true}}), hash_after(1, {}));
  expect_same_hashes({.options = {.static_graph = true}});
}

TEST(ReproducibleReduction, DrawsRandomNumbersByTheMicroBatch) {
  expect_same_hashes({.drops = true});
}

TEST(ReproducibleReduction, AveragesAsOneProcessOnTheWholeBatch) {
  comm::run_ranks(4, [](Communicator& group) {
    manual_seed(3);
    Replica replica(make_net(7), share(group), reproducible());
    const auto alone = make_net(7);
    const Batch batch = Batch::of_step(0, DType::f64, 5 * micro_batches);
    for (int k = 0; k < 2; ++k) {
      const Batch part = batch.part(2 * group.rank() + k, micro_batches);
      std::optional<Replica::NoSync> local;
      if (k == 0) local.emplace(replica.no_sync());
      replica.backward(loss_of(replica(part.x), part), 5.0);
    }
    loss_of(alone->forward(batch.x), batch).backward();
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-12, 1e-14);
  });
}

/// What wrapping says on each of some ranks.
template <class M>
void expect_refused(int ranks, const std::function<nn::ModulePtr<M>()>& make,
                    const Options& options, const std::string& message) {
  comm::run_ranks(ranks, [&](Communicator& group) {
    manual_seed(3);
    const auto model = make();
    EXPECT_THAT(message_of([&] { DistributedDataParallel<M>(model, share(group), options); }),
                HasSubstr(message));
  });
}

TEST(ReproducibleReduction, IsRefusedByNameWhereItCannotHold) {
  const auto net = [] { return make_net(7, DType::f32); };
  expect_refused<Net>(3, net, reproducible(), "reduction = reproducible over 3 ranks and 8 micro");
  Options options = reproducible();
  options.micro_batches = 6;
  expect_refused<Net>(2, net, options, "over micro_batches, which is 6; give a power of two");
  options.micro_batches = 2;
  expect_refused<Net>(4, net, options, "reduction = reproducible over 4 ranks and 2 micro");
  options.micro_batches = 0;
  expect_refused<Net>(2, net, options, "reduction = reproducible with micro_batches of 0");
  expect_refused<Net>(2, net, {.micro_batches = 4}, "which only reduction = reproducible takes");
  expect_refused<Net>(2, net, reproducible({.zero_stage = 1}),
                      "reduction = reproducible with a zero_stage of 1");
  expect_refused<Net>(
      2, [] { return make_net(7, DType::bf16); }, reproducible(),
      "parameter layers.0.weight is bf16");
  expect_refused<NormNet>(
      2, [] { return nn::make<NormNet>(); }, reproducible(), "norm is a batch norm");
}

TEST(ReproducibleReduction, RefusesHooksAndRanksWithoutDataByName) {
  comm::run_ranks(2, [](Communicator& group) {
    manual_seed(3);
    Replica replica(make_net(7, DType::f32), share(group), reproducible());
    EXPECT_THAT(message_of([&] { replica.register_comm_hook(compress_buckets(DType::bf16)); }),
                HasSubstr("in the place of a reproducible reduction"));
    EXPECT_THAT(message_of([&] { replica.replica().check_may_keep_gradients("LocalSGD"); }),
                HasSubstr("LocalSGD lets ranks drift"));
    EXPECT_THAT(message_of([&] { replica.backward_without_data(); }),
                HasSubstr("give a micro-batch a weight of 0"));
  });
}

TEST(ReproducibleReduction, RefusesGeneratorsThatDiffer) {
  comm::run_ranks(2, [](Communicator& group) {
    const auto net = make_net(7, DType::f32);
    manual_seed(static_cast<std::uint64_t>(group.rank()));
    EXPECT_THAT(message_of([&] { Replica(net, share(group), reproducible()); }),
                HasSubstr("seed of the random numbers"));
  });
}

// What it drops from then on would depend on how many ranks there are.
TEST(ReproducibleReduction, RefusesARankThatDrewRandomNumbersAlone) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    manual_seed(3);
    Options options = reproducible();
    options.micro_batches = 2;
    Replica replica(make_net(7, DType::f32), share(group), options);
    for (int step = 0; step < 3; ++step) {
      const Batch batch = Batch::of_step(step, DType::f32).part(group.rank(), group.size());
      loss_of(dropout(replica(batch.x), 0.5, true), batch).backward();
      replica.module().zero_grad();
      if (step == 1 && group.rank() == 0) (void)rand({3});
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, ContainsRegex("random numbers of seed 3 from place"));
}

TEST(ReproducibleReduction, RefusesAnotherNumberOfMicroBatchesAndGradientsThatWereKept) {
  comm::run_ranks(4, [](Communicator& group) {
    manual_seed(3);
    Replica replica(make_net(7, DType::f32), share(group), reproducible());
    const Batch batch = Batch::of_step(0, DType::f32);
    const auto backward = [&] { loss_of(replica(batch.x), batch).backward(); };
    EXPECT_THAT(message_of(backward),
                HasSubstr("micro-batch 1 of a step, of which each rank has 2"));
    const auto accumulate = [&] {
      const auto local = replica.no_sync();
      backward();
    };
    accumulate();
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("the update would leave it out"));
    EXPECT_THAT(message_of(accumulate), HasSubstr("micro-batch 2 of a step"));
    backward();
    EXPECT_THAT(message_of(accumulate),
                HasSubstr("call zero_grad() after each step, with set_to_none = true"));
    replica.module().zero_grad();
    accumulate();
    backward();
  });
}

// Hosts that hold other numbers of ranks would add in another order.
TEST(ReproducibleReduction, IsRefusedOverSeveralHostsWithSeveralRanksEach) {
  comm::run_over_hosts({0, 0, 1, 1}, [](Communicator& group) {
    EXPECT_THAT(message_of([&] { Replica(make_net(7), share(group), reproducible()); }),
                ::testing::AllOf(HasSubstr("over hier on cpu"), HasSubstr("\"mpi\" or \"tcp\"")));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
