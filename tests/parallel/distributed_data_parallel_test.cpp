#include <atomic>
#include <chrono>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "comm/slow_link.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/collectives.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "lockstep/train/loop.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/sharded_training.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::name_of_ranks, lockstep::testing::threads;

const auto replica_groups = ::testing::Values(threads(1), threads(2), threads(3), threads(4));
INSTANTIATE_TEST_SUITE_P(Thread, ReplicaContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, MixedDtypesContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, UseContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, UserHookContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, RewrappingContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, StepGraphContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, SyncBatchNormContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, BucketReductionContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, CommHookContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, StaticGraphContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, WeightContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, ZeroContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, GatherContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, GatheredUseContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, ZeroWriteContract, replica_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, PlannerContract, replica_groups, name_of_ranks);

// In arrays as large as all parameters, over four ranks: values, gradients in buckets, averages and
// the two moments of AdamW. Between steps, and at most.
TEST(Zero, HoldsWhatItsFormulaSays) {
  constexpr int ranks = 4;
  const std::size_t before = memory_allocated(cpu);
  for (const auto& [stage, between, most] : {std::tuple{0, 4 + 4 + 0 + 8, 0},
                                             {1, 4 + 4 + 1 + 2, 0},
                                             {2, 4 + 0 + 1 + 2, 4 + 2 + 1 + 2},
                                             {3, 1 + 0 + 1 + 2, 1 + 2 + 2 + 1 + 2}})
    comm::run_ranks(ranks, [&](Communicator& group) {
      const DistributedDataParallelOptions options{
          .bucket_bytes = 1 << 19, .first_bucket_bytes = 1 << 19, .zero_stage = stage};
      DistributedDataParallel<WideNet> replica(nn::make<WideNet>(), share(group), options);
      optim::AdamW optimizer(replica.named_parameters(), {});
      const auto step = [&] {
        mean(square(replica(rand({1, 384})))).backward();
        optimizer.step();
        optimizer.zero_grad();
        group.barrier().synchronize();
      };
      step();
      const auto numel = static_cast<double>(replica.module().parameter_count());
      const auto arrays = [&](std::size_t bytes) {
        return static_cast<double>(bytes - before) / (numel * sizeof(float));
      };
      EXPECT_NEAR(arrays(memory_allocated(cpu)), between, 0.1) << "stage " << stage;
      if (group.rank() == 0) reset_peak_memory_stats(cpu);
      group.barrier().synchronize();
      step();
      if (most > 0) {
        EXPECT_LT(arrays(max_memory_allocated(cpu)), most + 0.05)
            << "stage " << stage;  // activations
      }
      group.barrier().synchronize();
    });
}

// All gradients in one bucket would take 26 ms after backward; layers take 15 ms each to go back
// through. On a busy machine all of it takes longer, never less.
TEST(BucketPlanner, HidesMoreOverASlowLinkAndFindsWhatItCosts) {
  comm::run_ranks(2, [&](Communicator& world) {
    const CommunicatorPtr link =
        comm::over_slow_link(world, {.latency = 4e-3, .seconds_per_byte = 4e-6});
    const auto train = [&](BucketPlanning plan) {
      Replica replica(make_net(1), link, {.bucket_plan = plan});
      for (const auto& layer : *replica.module().layers)
        layer->weight.register_hook([](const Tensor& gradient) {
          std::this_thread::sleep_for(std::chrono::milliseconds(15));
          return gradient;
        });
      double exposed = 0;
      for (int step = 0; step < 8; ++step) {
        const Batch batch = Batch::of_step(step);
        loss_of(replica(batch.x), batch).backward();
        // Of a busy machine's steps, the best.
        const double now = replica.report().achieved.exposed;
        if (step == 4 || (step > 4 && now < exposed)) exposed = now;
      }
      if (plan == BucketPlanning::measured) {
        const CommunicationReport report = replica.report();
        EXPECT_GT(report.predicted->cost.latency, 3.9e-3);
        EXPECT_LT(report.predicted->cost.latency, 12e-3);
        EXPECT_GT(report.predicted->cost.seconds_per_byte, 3e-6);
        EXPECT_LT(report.predicted->cost.seconds_per_byte, 12e-6);
        EXPECT_LT(report.predicted->now.exposed, report.predicted->by_sizes_alone.exposed);
        EXPECT_GT(report.buckets.size(), 1u);
      }
      return exposed;
    };
    EXPECT_LT(train(BucketPlanning::measured), train(BucketPlanning::pytorch));
  });
}

/// Two layers, the second of which a forward may leave out.
struct OptionalLayer : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 6, 6, TensorOptions{.dtype = DType::f64}};
  nn::Child<nn::Linear> second{this, "second", 6, 6, TensorOptions{.dtype = DType::f64}};
  Tensor forward(const Tensor& x, bool uses_second) {
    const Tensor y = tanh(first(x));
    return uses_second ? tanh(second(y)) : y;
  }
};

// Buckets of the two are launched in another order on each rank.
TEST(CommunicationReport, SaysWhereNothingWasExchanged) {
  const auto report_of = [](const Replica& replica) {
    std::ostringstream text;
    text << replica.report();
    return text.str();
  };
  for (const int ranks : {1, 2})
    comm::run_ranks(ranks, [&](Communicator& group) {
      Replica replica(make_net(1), share(group));
      const Batch batch = Batch::of_step(0);
      {
        const auto local = replica.no_sync();
        loss_of(replica(batch.x), batch).backward();
      }
      EXPECT_THAT(report_of(replica), ::testing::HasSubstr("nothing was exchanged"));
      for (int step = 0; step < 2; ++step) loss_of(replica(batch.x), batch).backward();
      EXPECT_THAT(report_of(replica),
                  ::testing::HasSubstr(ranks == 1 ? "nothing was exchanged" : "hidden share"));
    });
}

TEST(Wrapper, StandsBesideAnotherInABackwardWhereEachHasAGroupOfItsOwn) {
  for (const bool is_static : {false, true})
    comm::run_ranks(2, [&](Communicator& group) {
      const auto body = nn::make<OptionalLayer>(), body_alone = nn::make<OptionalLayer>();
      fill(*body, 1);
      fill(*body_alone, 1);
      const auto head = make_net(2), head_alone = make_net(2);
      DistributedDataParallel<OptionalLayer> of_body(body, share(group),
                                                     {.bucket_bytes = 1,
                                                      .first_bucket_bytes = 1,
                                                      .find_unused_parameters = !is_static,
                                                      .static_graph = is_static});
      Replica of_head(head, group.split(0, group.rank()),
                      {.bucket_bytes = 1, .first_bucket_bytes = 1});
      for (int step = 0; step < 3; ++step) {
        const Batch whole = Batch::of_step(step), own = whole.part(group.rank(), 2);
        loss_of(of_head(of_body(own.x, group.rank() == 0)), own).backward();
        for (int rank = 0; rank < 2; ++rank) {
          const Batch part = whole.part(rank, 2);
          const Tensor y = head_alone->forward(body_alone->forward(part.x, rank == 0));
          (loss_of(y, part) / 2.0).backward();
        }
        expect_close(gradients_of(*body), gradients_of(*body_alone), 1e-12, 1e-14);
        expect_close(gradients_of(*head), gradients_of(*head_alone), 1e-12, 1e-14);
        for (nn::Module* const each :
             std::initializer_list<nn::Module*>{&*body, &*body_alone, &*head, &*head_alone})
          each->zero_grad();
      }
    });
}

TEST(Wrapper, AndWhatElseTakesAGroupRefusesToBeWithoutOne) {
  const auto module = nn::make<nn::Linear>(2, 2);
  const CommunicatorPtr none;
  EXPECT_THAT(message_of([&] { const DistributedDataParallel<nn::Linear> replica(module, none); }),
              ::testing::HasSubstr("DistributedDataParallel: no group"));
  EXPECT_THAT(message_of([&] { const DivergenceCheck check(module->named_parameters(), none); }),
              ::testing::HasSubstr("DivergenceCheck: no group"));
  EXPECT_THAT(message_of([&] { const train::Loop loop(none, {.steps = 1}); }),
              ::testing::HasSubstr("train::Loop: no group"));
}

TEST(SyncBatchNorm, RefusesRanksThatDiffer) {
  const auto refused = [](const std::function<void(Communicator&)>& body) {
    EXPECT_THROW(comm::run_ranks(2, body), Error);
  };
  refused([](Communicator& group) {
    const std::int64_t channels = group.rank() == 0 ? 3 : 4;
    nn::make<nn::SyncBatchNorm>(nn::BatchNormLayerOptions{.channels = channels},
                                share(group))(randn({2, channels}));
  });
  refused([](Communicator& group) {
    const auto norm = nn::make<nn::SyncBatchNorm>(
        nn::BatchNormLayerOptions{.channels = 3, .affine = false}, share(group));
    norm(randn({2, 3}).set_requires_grad(group.rank() == 0));
  });
}

// Of a bucket that holds all parameters; written to by hand as a parameter, or as its shard.
/// A norm whose gradient goes on to parameters.
struct InnerNormNet : nn::Module {
  nn::Child<nn::Linear> input{this, "input", 6, 6, TensorOptions{.dtype = DType::f64}};
  nn::Child<NormNet> rest{this, "rest"};
  Tensor forward(const Tensor& x) { return rest(input(x)); }
};

/// Losses whose backward exchanges gradients between ranks.
std::vector<std::function<Tensor(const Tensor&)>> losses_over(const CommunicatorPtr& group) {
  constexpr auto partial = ResultGradient::partial;
  return {
      [](const Tensor& y) { return y.square().mean(); },  // of synchronized norms
      [=](const Tensor& y) {
        return matmul(y, all_gather(y, group, 0, partial).t()).square().mean();
      },
      [=](const Tensor& y) { return (y - all_reduce(y * 0.2, group, partial)).square().mean(); },
      [=](const Tensor& y) { return (y * broadcast(y, group, 1, partial)).mean(); },
      [=](const Tensor& y) { return reduce_scatter(y, group, 0).square().mean() + y.mean(); },
  };
}

// Each rank's gradients are in units of its first weight until they are averaged; losses that are
// scaled by hand are in the same unit.
TEST(Collectives, AddUpGradientsOfMicroBatchesByTheirWeights) {
  for (std::size_t kind = 0; kind < 5; ++kind)
    comm::run_ranks(3, [kind](Communicator& group) {
      const auto loss_of_kind = losses_over(share(group))[kind];
      // The last rank has nothing to count.
      const bool has_data = group.rank() < 2;
      const double first = has_data ? 3 + group.rank() : 0,
                   second = has_data ? 5 - group.rank() : 0;
      constexpr double total = 3 + 5 + 4 + 4;
      const auto gradients = [&](const auto& backward) {
        manual_seed(1);
        const auto net = nn::make<InnerNormNet>();
        nn::convert_sync_batchnorm(*net, share(group));
        DistributedDataParallel<InnerNormNet> replica(net, share(group));
        const auto train = [&](int micro, double weight) {
          const Tensor x = leaf({6, 6}, 10 * micro + group.rank());
          backward(replica, loss_of_kind(replica(x)), weight);
        };
        {
          const auto local = replica.no_sync();
          train(0, first);
        }
        train(1, second);
        std::vector<Tensor> found;
        for (const Tensor& each : replica.parameters()) found.push_back(each.grad());
        return found;
      };
      const auto by_hand = gradients([&](auto&, const Tensor& loss, double weight) {
        (loss * (weight * group.size() / total)).backward();
      });
      const auto expect_equal = [&](const std::vector<Tensor>& found) {
        ASSERT_EQ(found.size(), by_hand.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_LT(max(abs(found[i] - by_hand[i])).item(),
                    1e-12 * (1 + max(abs(by_hand[i])).item()));
      };
      expect_equal(gradients([](auto& replica, const Tensor& loss, double weight) {
        replica.backward(loss, weight);
      }));
      expect_equal(gradients([](auto& replica, const Tensor& loss, double weight) {
        replica.backward(loss, full({}, weight));
      }));
    });
}

TEST(Zero, NamesTheLayerWhoseParameterWasWrittenBetweenForwardAndBackward) {
  for (const int stage : {0, 1, 2})
    for (const bool is_shard : {false, true})
      comm::run_ranks(2, [&](Communicator& group) {
        Replica replica(make_net(1), share(group), {.zero_stage = stage});
        replica.module().calls_layers = true;
        const Batch batch = Batch::of_step(0).part(group.rank(), 2);
        const Tensor loss = loss_of(replica(batch.x), batch);
        const NamedTensors written =
            is_shard ? replica.named_parameters() : replica.module().named_parameters();
        ASSERT_EQ(written[2].first, "layers.1.weight");
        no_grad([&] { written[2].second.detach().fill_(0.5); });
        EXPECT_THAT(message_of([&] { loss.backward(); }),
                    ::testing::AllOf(::testing::HasSubstr("layers.1"),
                                     ::testing::HasSubstr("was changed in place")));
      });
}

TEST(CommHook, WhoseOpFailsIsNamedWithTheBucket) {
  comm::run_ranks(2, [](Communicator& group) {
    Replica replica(make_net(1), share(group), small_buckets);
    replica.register_comm_hook("adds too much", [](GradBucket& bucket) -> BucketExchange {
      const Tensor error = zeros({bucket.buffer().numel() + 1}, bucket.buffer().options());
      bucket.buffer().add_(error);
      co_return;
    });
    const Batch batch = Batch::of_step(0).part(group.rank(), 2);
    const Tensor loss = loss_of(replica(batch.x), batch);
    EXPECT_THAT(message_of([&] { loss.backward(); }),
                ::testing::HasSubstr("in the reduction 'adds too much' of bucket 0 ("));
  });
}

// Dropped, kept until the end, awaited but for one, and on one rank alone.
TEST(CommHook, ThatForgetsToAwaitACollectiveIsRefusedOnAllRanks) {
  using Hook = std::function<BucketExchange(GradBucket&)>;
  const Hook drops = [](GradBucket& bucket) -> BucketExchange {
    static_cast<void>(bucket.all_reduce(bucket.buffer()));
    co_return;
  };
  const Hook keeps = [](GradBucket& bucket) -> BucketExchange {
    const TensorWork work = bucket.all_reduce(bucket.buffer());
#if !defined(__SANITIZE_THREAD__)
    bucket.buffer().mul_(0.5);  // a race, as such a hook has
#endif
    co_return;
  };
  const Hook is_no_coroutine = [](GradBucket& bucket) {
    static_cast<void>(bucket.all_reduce(bucket.buffer()));
    return BucketExchange();
  };
  const Hook awaits_one_of_two = [](GradBucket& bucket) -> BucketExchange {
    const Tensor ranks = empty({bucket.group().size()}, bucket.buffer().options());
    co_await bucket.all_reduce(bucket.buffer());
    static_cast<void>(bucket.all_gather(ranks.slice(0, 0, 1) * 1.0, ranks));
  };
  const Hook forgets_on_one_rank = [](GradBucket& bucket) -> BucketExchange {
    TensorWork work = bucket.all_reduce(bucket.buffer());
    if (bucket.group().rank() == 0) co_await work;
  };
  for (const auto& [hook, collective] : {std::pair{drops, "collective 1 of 1, all_reduce"},
                                         {keeps, "1 of 1, all_reduce"},
                                         {is_no_coroutine, "1 of 1, all_reduce"},
                                         {awaits_one_of_two, "2 of 2, all_gather"},
                                         {forgets_on_one_rank, "1 of 1, all_reduce"}})
    comm::run_ranks(2, [&, told = collective](Communicator& group) {
      Replica replica(make_net(1), share(group), small_buckets);
      replica.register_comm_hook("forgets", hook);
      const Batch batch = Batch::of_step(0).part(group.rank(), 2);
      const Tensor loss = loss_of(replica(batch.x), batch);
      EXPECT_THAT(
          message_of([&] { loss.backward(); }),
          ::testing::AllOf(::testing::HasSubstr("the reduction 'forgets' of bucket 0 ("),
                           ::testing::HasSubstr(told), ::testing::HasSubstr("write co_await")));
    });
}

TEST(CommHook, MayWaitForACollectiveWithoutCoAwait) {
  comm::run_ranks(2, [&](Communicator& group) {
    const auto waits = reduce_buckets_by("waits", [](GradBucket& bucket) -> BucketExchange {
      bucket.all_reduce(bucket.buffer()).wait();
      co_return;
    });
    EXPECT_EQ(gradients_by(group, waits), gradients_by(group, nullptr));
  });
}

// While collectives of other buckets are under way, whose memory must outlive the exchange.
TEST(CommHook, ThatThrowsOnOneRankEndsTheBackwardOnAll) {
  std::atomic<int> failed = 0;
  const auto train = [&](Communicator& group) {
    Replica replica(make_net(1), share(group), small_buckets);
    replica.register_comm_hook("throws", [](GradBucket& bucket) -> BucketExchange {
      const Tensor sent = bucket.buffer() * 1.0;
      co_await bucket.all_reduce(sent);
      const Tensor again = sent * 1.0;
      TensorWork work = bucket.all_reduce(again);
      if (bucket.index() == 1 && bucket.group().rank() == 1)
        LOCKSTEP_THROW(InvalidArgument, "out of ideas");
      co_await work;
    });
    const Batch batch = Batch::of_step(0);
    const auto message = message_of([&] { loss_of(replica(batch.x), batch).backward(); });
    EXPECT_NE(message.find("out of ideas"), std::string::npos) << message;
    ++failed;
    EXPECT_THROW(loss_of(replica(batch.x), batch), Error);
  };
  comm::run_ranks(3, train);
  EXPECT_EQ(failed, 3);
}

}  // namespace
}  // namespace lockstep::parallel::testing
