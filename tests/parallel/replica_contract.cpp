// What DistributedDataParallel must compute over any communicator.

#include <chrono>
#include <random>
#include <thread>

#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/step.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReplicaContract);

// Two steps of AdamW in one process, on whole batches.
std::vector<double> train_alone(DType dtype) {
  auto net = make_net(7, dtype);
  optim::AdamW optimizer(net->parameters(), {.lr = 1e-2});
  for (int step = 0; step < 2; ++step) {
    const Batch batch = Batch::of_step(step, dtype);
    loss_of(net->forward(batch.x), batch).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return values_of(*net);
}

// The same two steps, each rank on its part of the batches.
std::vector<double> train_together(Communicator& group, DType dtype, std::size_t bucket,
                                   const std::function<void()>& delay = {}) {
  Replica replica(make_net(7 + static_cast<std::uint64_t>(group.rank()), dtype), share(group),
                  {.bucket_bytes = bucket, .first_bucket_bytes = bucket});
  replica.module().delay = delay;
  optim::AdamW optimizer(replica.parameters(), {.lr = 1e-2});
  for (int step = 0; step < 2; ++step) {
    const Batch batch = Batch::of_step(step, dtype).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  expect_equal_replicas(group, replica.module());
  return values_of(replica.module());
}

TEST_P(ReplicaContract, StartsWithTheValuesOfRankZeroEverywhere) {
  run([](Communicator& group) {
    const auto net = make_net(100 + static_cast<std::uint64_t>(group.rank()));
    const Replica replica(net, share(group));
    EXPECT_EQ(values_of(*net), values_of(*make_net(100)));
    expect_equal_replicas(group, *net);
  });
}

TEST_P(ReplicaContract, EqualsOneProcessOnTheFullBatchForAnyBucketSize) {
  const auto f64 = train_alone(DType::f64), f32 = train_alone(DType::f32);
  run([&](Communicator& group) {
    for (const std::size_t bucket : {std::size_t{1}, std::size_t{1} << 10, std::size_t{25} << 20}) {
      expect_close(train_together(group, DType::f64, bucket), f64, 1e-11, 1e-12);
      expect_close(train_together(group, DType::f32, bucket), f32, 1.3e-6, 5e-5);
    }
  });
}

TEST_P(ReplicaContract, RepeatsBitForBitWhateverTheDelaysOfTheRanks) {
  run([](Communicator& group) {
    const auto first = train_together(group, DType::f32, 1 << 10);
    for (int run = 0; run < 20; ++run) {
      std::minstd_rand random(static_cast<unsigned>(run * 31 + group.rank() + 1));
      const auto again = train_together(group, DType::f32, 1 << 10, [&] {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      });
      ASSERT_EQ(again, first) << "run " << run;
    }
  });
}

// Which layers a rank leaves out in a step: each rank others, layer 2 by all in step 3.
std::vector<std::size_t> skipped_by(int rank, int step) {
  if (step == 3) return {2};
  std::vector<std::size_t> skipped;
  if ((rank + step) % 2 == 0) skipped.push_back(1);
  if ((rank + step) % 3 == 0) skipped.push_back(2);
  return skipped;
}

TEST_P(ReplicaContract, FindsUnusedParametersThatChangeWithRankAndStep) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group),
                    {.bucket_bytes = 1, .first_bucket_bytes = 1, .find_unused_parameters = true});
    for (int step = 0; step < 6; ++step) {
      const auto alone = make_net(1);
      Tensor total = zeros({}, {.dtype = DType::f64, .device = device_of_rank});
      for (int rank = 0; rank < group.size(); ++rank) {
        const Batch batch = Batch::of_step(step).part(rank, group.size());
        total = total + loss_of(alone->forward(batch.x, skipped_by(rank, step)), batch);
      }
      (total / group.size()).backward();
      replica.module().zero_grad();
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      loss_of(replica(batch.x, skipped_by(group.rank(), step)), batch).backward();
      expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
      for (std::size_t i = 0; i < 8; ++i)
        EXPECT_EQ(replica.parameters()[i].grad().defined(), alone->parameters()[i].grad().defined())
            << "step " << step << ", parameter " << i;
    }
  });
}

TEST_P(ReplicaContract, AccumulatesInNoSyncLikeOneBatch) {
  const auto alone = make_net(3);
  const Batch whole = Batch::of_step(0, DType::f64, 24);
  loss_of(alone->forward(whole.x), whole).backward();
  run([&](Communicator& group) {
    for (const std::size_t bucket : {1u, 1u << 20}) {
      Replica replica(make_net(3), share(group), {.bucket_bytes = bucket});
      const Batch own = whole.part(group.rank(), group.size());
      for (int micro = 0; micro < 2; ++micro) {
        std::optional<Replica::NoSync> local;
        if (micro == 0) local.emplace(replica.no_sync());
        const Batch batch = own.part(micro, 2);
        (loss_of(replica(batch.x), batch) / 2.0).backward();
      }
      expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
    }
  });
}

TEST_P(ReplicaContract, StartsEachStepWithTheBuffersOfRankZeroAndKeepsThemInAccumulation) {
  run([](Communicator& group) {
    for (const bool broadcast : {true, false}) {
      auto net = nn::make<NormNet>();
      net->to(device_of_rank);
      DistributedDataParallel<NormNet> replica(net, share(group), {.broadcast_buffers = broadcast});
      const auto step = [&](int rank, int number, auto&& model, auto&& accumulates) {
        const Batch batch = Batch::of_step(number).part(rank, group.size());
        for (const bool is_last : {false, true}) {
          [[maybe_unused]] const auto local = accumulates(!is_last);
          loss_of(model(batch.x), batch).backward();
        }
      };
      // What a rank would have alone: the first step with another rank's data, or its own.
      const auto alone = nn::make<NormNet>();
      alone->to(device_of_rank);
      const auto never = [](bool) { return 0; };
      step(broadcast ? 0 : group.rank(), 0, alone, never);
      step(group.rank(), 1, alone, never);
      for (int number = 0; number < 2; ++number)
        step(group.rank(), number, replica, [&](bool is_local) {
          return is_local ? std::optional(replica.no_sync()) : std::nullopt;
        });
      expect_close(net->norm->running_mean.to_vector<double>(),
                   alone->norm->running_mean.to_vector<double>(), 1e-12, 1e-13);
      EXPECT_EQ(net->norm->num_batches_tracked.item(), 4);
    }
  });
}

TEST_P(ReplicaContract, TakesGradientsFilledWithZerosForClearedOnes) {
  run([](Communicator& group) {
    Replica replica(make_net(3), share(group));
    const Batch batch = Batch::of_step(0);
    for (int step = 0; step < 2; ++step) {
      replica.module().zero_grad(group.rank() > 0);  // rank 0 fills its own with zeros
      loss_of(replica(batch.x), batch).backward();
    }
    const auto alone = make_net(3);
    loss_of(alone->forward(batch.x), batch).backward();
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
  });
}

TEST_P(ReplicaContract, EvaluatesWithTheBuffersOfRankZero) {
  run([](Communicator& group) {
    for (const bool broadcast : {true, false}) {
      const auto net = nn::make<NormNet>(), alone = nn::make<NormNet>();
      net->to(device_of_rank);
      alone->to(device_of_rank);
      DistributedDataParallel<NormNet> replica(net, share(group), {.broadcast_buffers = broadcast});
      optim::SGD optimizer(replica.parameters(), {.lr = 0.0});
      train::Step step(replica, optimizer, [&](std::span<const Tensor> in) -> train::WeightedLoss {
        return mse_loss(replica(in[0]), in[1]);
      });
      const Batch own = own_part(group, 0);
      step({own.x, own.target});
      const int trained_by = broadcast ? 0 : group.rank();
      alone->forward(Batch::of_step(0).part(trained_by, group.size()).x);
      const auto scope = step.evaluation();
      expect_close(net->norm->running_mean.to_vector<double>(),
                   alone->norm->running_mean.to_vector<double>(), 1e-12, 1e-13);
    }
  });
}

TEST_P(ReplicaContract, LeavesFrozenParametersOutAndReducesTheRest) {
  run([](Communicator& group) {
    const auto freeze = [](Net& net) {
      net.layers[1]->requires_grad_(false);
      net.layers[3]->bias.set_requires_grad(false);
    };
    const auto alone = make_net(4), net = make_net(4);
    freeze(*alone);
    freeze(*net);
    Replica replica(net, share(group), {.bucket_bytes = 1 << 10});
    std::size_t planned = 0;
    for (const Bucket& bucket : replica.reducer().buckets()) planned += bucket.parameters.size();
    EXPECT_EQ(planned, 5u);
    const Batch whole = Batch::of_step(0), own = whole.part(group.rank(), group.size());
    loss_of(alone->forward(whole.x), whole).backward();
    loss_of(replica(own.x), own).backward();
    expect_close(gradients_of(*net), gradients_of(*alone), 1e-11, 1e-13);
    EXPECT_FALSE(net->layers[1]->weight.grad().defined());
  });
}

TEST_P(ReplicaContract, ReducesTiedWeightsOnce) {
  const auto make_gpt = [] {
    auto model = models::gpt2({.layers = 2,
                               .heads = 2,
                               .channels = 16,
                               .context = 8,
                               .vocabulary = 32,
                               .tensor = {.dtype = DType::f64}});
    fill(*model, 5);
    model->to(device_of_rank);
    return model;
  };
  const auto loss_on = [](const Tensor& logits, const Tensor& tokens) {
    return cross_entropy(logits.reshape({-1, 32}), tokens.reshape({-1}));
  };
  std::vector<std::int64_t> values(12 * 8);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int64_t>(i * i * 7 % 32);
  const Tensor tokens = from_span<std::int64_t>(values, {12, 8});
  const auto alone = make_gpt();
  loss_on(alone->forward(tokens), tokens).backward();
  run([&](Communicator& group) {
    DistributedDataParallel<models::Gpt2> replica(make_gpt(), share(group), {.bucket_bytes = 1024});
    for (int step = 0; step < 2; ++step) {
      replica.module().zero_grad();
      const std::int64_t rows = 12 / group.size(), begin = group.rank() * rows;
      const Tensor own = tokens.slice(0, begin, begin + rows).to(device_of_rank);
      loss_on(replica(own), own).backward();
      expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-10, 1e-12);
    }
  });
}

TEST_P(ReplicaContract, TrainsBfloat16Parameters) {
  run([](Communicator& group) {
    const auto exact = make_net(6, DType::f32);
    const Batch whole = Batch::of_step(0, DType::f32);
    loss_of(exact->forward(whole.x), whole).backward();
    Replica replica(make_net(6, DType::bf16), share(group));
    optim::AdamW optimizer(replica.parameters(), {.lr = 1e-2});
    const Batch own = Batch::of_step(0, DType::bf16).part(group.rank(), group.size());
    double first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
      const Tensor loss = loss_of(replica(own.x), own);
      loss.backward();
      if (step == 0) {
        const auto expected = gradients_of(*exact);
        const double largest = std::abs(
            *std::ranges::max_element(expected, {}, [](double value) { return std::abs(value); }));
        expect_close(gradients_of(replica.module()), expected, 0, 2e-2 * largest);
      }
      last = comm::all_reduce_scalar(group, loss.item());
      if (step == 0) first = last;
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_LT(last, 0.9 * first);
    expect_equal_replicas(group, replica.module());
  });
}

TEST_P(ReplicaContract, StartsTheFirstReductionBeforeBackwardEnds) {
  run([](Communicator& group) {
    const auto net = nn::make<WideNet>();
    net->to(device_of_rank);
    DistributedDataParallel<WideNet> replica(net, share(group), {.bucket_bytes = 1 << 20});
    // On a busy machine the communication thread may have to wait for a core: some step shows it,
    // on each rank another.
    ReducerTrace trace;
    bool here = false, everywhere = false;
    for (int step = 0; step < 200 && !everywhere; ++step) {
      mean(square(replica(rand({256, 384}, {.device = device_of_rank})))).backward();
      trace = replica.reducer().trace();
      here = here || trace.buckets.front().started < trace.backward_end;
      everywhere = comm::all_reduce_scalar(group, std::int64_t{here}) == group.size();
    }
    EXPECT_TRUE(here);
    ASSERT_GT(trace.buckets.size(), 2u);
    EXPECT_LE(trace.backward_end, trace.synchronized);
    for (std::size_t i = 1; i < trace.buckets.size(); ++i)
      EXPECT_LE(trace.buckets[i - 1].launched, trace.buckets[i].launched);
    if (group.rank() == 0)
      ::testing::Test::RecordProperty("hidden_share", std::to_string(trace.hidden_share()));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
