// Batches of different size on the ranks of any group.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/bucket_reduction.hpp"
#include "lockstep/train/step.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WeightContract);

Batch rows_of(const Batch& batch, std::int64_t begin, std::int64_t end) {
  return {batch.x.slice(0, begin, end), batch.target.slice(0, begin, end)};
}

// Gradients of one process on a whole batch.
std::vector<double> gradients_alone(const Batch& batch, DType dtype = DType::f64) {
  const auto alone = make_net(1, dtype);
  loss_of(alone->forward(batch.x), batch).backward();
  return gradients_of(*alone);
}

Replica weighted_replica(Communicator& group, DType dtype = DType::f64) {
  return Replica(make_net(1, dtype), share(group),
                 {.bucket_bytes = 1 << 10, .first_bucket_bytes = 1 << 8});
}

// Rank r has r + 1 of the rows, given as a number and as a tensor.
TEST_P(WeightContract, OfUnevenBatchesGivesWhatOneProcessHas) {
  run([](Communicator& group) {
    const std::int64_t rank = group.rank(), rows = group.size() * (group.size() + 1) / 2;
    for (const auto& [dtype, tolerance] :
         {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-5}, {DType::bf16, 0.1}}) {
      Replica replica = weighted_replica(group, dtype);
      for (int step = 0; step < 3; ++step) {
        const Batch whole = Batch::of_step(step, dtype, rows);
        const Batch own = rows_of(whole, rank * (rank + 1) / 2, (rank + 1) * (rank + 2) / 2);
        replica.module().zero_grad();
        const Tensor loss = loss_of(replica(own.x), own);
        if (step == 1)
          replica.backward(loss,
                           full({1}, rank + 1.0, {.dtype = DType::i64, .device = device_of_rank}));
        else
          replica.backward(loss, static_cast<double>(rank + 1));
        expect_close(gradients_of(replica.module()), gradients_alone(whole, dtype), tolerance,
                     0.05 * tolerance);
      }
    }
  });
}

// As of a first micro-batch of padding alone.
TEST_P(WeightContract, OfNothingIsNoUnitForGradientsInF16) {
  run([](Communicator& group) {
    const auto net =
        nn::make<nn::Linear>(nn::LinearOptions{.in = 2, .out = 1, .tensor = {.dtype = DType::f16}});
    net->to(group.device());
    DistributedDataParallel<nn::Linear> replica(net, share(group));
    const Tensor x = full({1, 2}, 100, {.dtype = DType::f16, .device = device_of_rank});
    for (const bool as_tensor : {false, true}) {
      net->zero_grad();
      const auto backward = [&](double weight) {
        const Tensor loss = replica(x).sum();
        if (as_tensor)
          replica.backward(loss, full({}, weight, {.dtype = DType::f64, .device = device_of_rank}));
        else
          replica.backward(loss, weight);
      };
      {
        const auto local = replica.no_sync();
        backward(0);
        backward(3000);
      }
      backward(2000);
      EXPECT_EQ(Tensor(net->weight).grad().to_vector<double>(), (std::vector<double>{100, 100}));
    }
  });
}

TEST_P(WeightContract, CarriesThoseOfMicroBatches) {
  run([](Communicator& group) {
    const std::int64_t rank = group.rank(), each = 6, rows = group.size() * each;
    for (const auto& [dtype, tolerance] :
         {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-5}, {DType::bf16, 0.1}}) {
      Replica replica = weighted_replica(group, dtype);
      for (int step = 0; step < 3; ++step) {
        const Batch whole = Batch::of_step(step, dtype, rows);
        replica.module().zero_grad();
        // Parts of 1, 3 and 2 rows, which each rank has in another order.
        std::vector<std::pair<int, int>> parts{{0, 1}, {1, 4}, {4, 6}};
        std::rotate(parts.begin(), parts.begin() + (rank + step) % 3, parts.end());
        for (std::size_t i = 0; i < parts.size(); ++i) {
          std::optional<Replica::NoSync> local;
          if (i + 1 < parts.size()) local.emplace(replica.no_sync());
          const auto [begin, end] = parts[i];
          const Batch own = rows_of(whole, rank * each + begin, rank * each + end);
          replica.backward(loss_of(replica(own.x), own), 1000.0 * (end - begin));
        }
        expect_close(gradients_of(replica.module()), gradients_alone(whole, dtype), tolerance,
                     0.05 * tolerance);
      }
    }
  });
}

// N7: the ranks have 1, 2, 3, ... batches.
TEST_P(WeightContract, TrainsOnUntilNoRankHasData) {
  run([](Communicator& group) {
    const auto net = make_net(4), alone = make_net(4);
    Replica replica(net, share(group), {.bucket_bytes = 1 << 10, .first_bucket_bytes = 1 << 8});
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
    optim::AdamW optimizer_alone(alone->named_parameters(), {.lr = 1e-2});
    const int own_batches = group.size() - group.rank();  // rank 0 has most
    int steps = 0;
    for (;; ++steps) {
      const auto batch_of = [&](int rank) {
        return rows_of(Batch::of_step(steps * 10 + rank), 0, 2 + rank);
      };
      if (steps < own_batches) {
        const Batch own = batch_of(group.rank());
        replica.backward(loss_of(replica(own.x), own), static_cast<double>(own.x.size(0)));
      } else if (!replica.backward_without_data()) {
        for (const Tensor& parameter : replica.parameters())
          EXPECT_FALSE(parameter.grad().defined());
        break;
      }
      optimizer.step();
      optimizer.zero_grad();

      double weight = 0;
      for (int rank = 0; rank < group.size() - steps; ++rank) weight += 2 + rank;
      for (int rank = 0; rank < group.size() - steps; ++rank) {
        const Batch batch = batch_of(rank);
        (loss_of(alone->forward(batch.x), batch) * ((2 + rank) / weight)).backward();
      }
      optimizer_alone.step();
      optimizer_alone.zero_grad();
    }
    EXPECT_EQ(steps, group.size());
    expect_close(values_of(*net), values_of(*alone), 1e-9, 1e-11);
    expect_equal_replicas(group, *net);
  });
}

// The rank that has it updates, and so do all.
TEST_P(WeightContract, TakesABatchThatCountsNothingForData) {
  run([](Communicator& group) {
    Replica replica = weighted_replica(group);
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2, .weight_decay = 0.5});
    const Batch batch = Batch::of_step(0);
    for (const double weight : {3.0, 0.0}) {
      if (group.rank() == 0)
        replica.backward(loss_of(replica(batch.x), batch), weight);
      else
        EXPECT_TRUE(replica.backward_without_data()) << weight;
      optimizer.step();
      optimizer.zero_grad();
    }
    expect_equal_replicas(group, replica.module());
    EXPECT_FALSE(replica.backward_without_data());
  });
}

// What it accumulated before its data ended counts.
TEST_P(WeightContract, TakesWhatARankHadBeforeItsDataEnded) {
  run([](Communicator& group) {
    const std::int64_t rank = group.rank(), rows = 3 * group.size();
    Replica replica = weighted_replica(group);
    const Batch whole = Batch::of_step(0, DType::f64, rows);
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      return rows_of(whole, 3 * rank + begin, 3 * rank + end);
    };
    {
      const auto local = replica.no_sync();
      const Batch first = part(0, 2);
      replica.backward(loss_of(replica(first.x), first), 2);
    }
    const bool ended = rank == group.size() - 1;
    const Batch last = part(2, 3);
    if (ended) {
      EXPECT_TRUE(replica.backward_without_data());
    } else {
      replica.backward(loss_of(replica(last.x), last), 1);
    }
    const Batch seen = rows_of(whole, 0, rows - 1);
    expect_close(gradients_of(replica.module()), gradients_alone(seen), 1e-11, 1e-13);
  });
}

TEST_P(WeightContract, GoesWithLossScalesAndCompression) {
  run([](Communicator& group) {
    const std::int64_t rank = group.rank();
    Replica replica = weighted_replica(group, DType::f32);
    replica.register_comm_hook(compress_buckets(DType::bf16));
    optim::SGD optimizer(replica.parameters(), {.lr = 0.1});
    amp::GradScaler scaler({.init_scale = 1024});
    for (int step = 0; step < 3; ++step) {
      const Batch own = rows_of(Batch::of_step(step, DType::f32), 0, rank + 1);
      if (step == 0 || rank == 0) {
        replica.backward(scaler.scale(loss_of(replica(own.x), own)), static_cast<double>(rank + 1));
      } else {
        scaler.scale(zeros({}, {.device = device_of_rank}));  // ranks tell each other that they do
        EXPECT_TRUE(replica.backward_without_data());
      }
      scaler.step(optimizer);
      scaler.update();
      optimizer.zero_grad();
    }
    expect_equal_replicas(group, replica.module());
    EXPECT_EQ(scaler.get_scale(), 1024);
  });
}

TEST_P(WeightContract, MayChangeFromLaunchToLaunchOfACapturedStep) {
  run([](Communicator& group) {
    const auto train = [&](bool capture) {
      Replica replica(make_net(2, DType::f32), share(group));
      optim::SGD optimizer(replica.parameters(), {.lr = 0.1});
      const auto step = [&](std::span<const Tensor> in) {
        for (int part = 0; part < 2; ++part) {
          std::optional<Replica::NoSync> local;
          if (part == 0) local.emplace(replica.no_sync());
          const Batch own = rows_of({in[0], in[1]}, 3 * part, 3 * part + 3);
          replica.backward(loss_of(replica(own.x), own), in[2].select(0, part));
        }
        optimizer.step();
        optimizer.zero_grad();
        return std::vector<Tensor>{};
      };
      StepGraph graph(step, {.group = share(group)});
      for (int i = 0; i < 10; ++i) {
        const Batch batch = Batch::of_step(i, DType::f32).part(group.rank(), group.size());
        const Batch own = rows_of(
            {cat({batch.x, batch.x, batch.x}), cat({batch.target, batch.target, batch.target})}, 0,
            6);
        const Tensor weights =
            tensor<double>({1.0 + (i + group.rank()) % 3, 2.0 + i % 2}).to(device_of_rank);
        if (capture)
          graph({own.x, own.target, weights});
        else
          step(std::vector{own.x, own.target, weights});
      }
      if (capture) {
        EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
      }
      return values_of(replica.module());
    };
    EXPECT_EQ(train(true), train(false));
  });
}

/// The fourth replays a captured step.
int steps_if(bool shards) { return shards ? 2 : 4; }

/// Losses of the whole, and the parameters, of steps on 5 rows that the first rank has: captured,
/// and weighed by what is counted on the device, or with parameters shared out.
std::vector<double> trained_on_first(Communicator& group, bool shards) {
  Replica replica(make_net(2, DType::f32), share(group), {.zero_stage = shards ? 3 : 0});
  optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  train::Step step(replica, optimizer,
                   [&](std::span<const Tensor> in) -> train::WeightedLoss {
                     const Tensor loss = loss_of(replica(in[0]), {in[0], in[1]});
                     if (shards) return loss;
                     return {loss, ne(in[1], 100.0).sum()};
                   },
                   {.max_norm = 0.5, .capture = !shards});
  std::vector<double> numbers;
  for (int i = 0; i < steps_if(shards); ++i) {
    const Batch own = rows_of(Batch::of_step(i, DType::f32, 5), 0, group.rank() == 0 ? 5 : 0);
    numbers.push_back(step({own.x, own.target}).loss.item());
  }
  EXPECT_EQ(step.fallback_reason(), "");
  const auto whole = replica.whole_parameters();
  const std::vector<double> values = values_of(replica.module());
  numbers.insert(numbers.end(), values.begin(), values.end());
  return numbers;
}

/// The same numbers of one process, by the ops that a step is made of.
std::vector<double> trained_alone(int steps) {
  const auto net = make_net(2, DType::f32);
  optim::SGD optimizer(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<double> numbers;
  for (int i = 0; i < steps; ++i) {
    const Batch batch = Batch::of_step(i, DType::f32, 5);
    const Tensor loss = loss_of(net->forward(batch.x), batch);
    numbers.push_back(loss.item());
    optimizer.zero_grad();
    loss.backward();
    optim::clip_grad_norm_(net->parameters(), 0.5);
    optimizer.step();
  }
  const std::vector<double> values = values_of(*net);
  numbers.insert(numbers.end(), values.begin(), values.end());
  return numbers;
}

TEST_P(WeightContract, OfCapturedStepsOnOneRankWithRowsIsThatOfTheRank) {
  run([](Communicator& group) {
    for (const bool shards : {false, true})
      expect_close(trained_on_first(group, shards), trained_alone(steps_if(shards)), 1e-5, 1e-6);
  });
}

TEST_P(WeightContract, IsGivenByAllBackwardsOfAStep) {
  run([](Communicator& group) {
    const Batch batch = Batch::of_step(0);
    Replica replica = weighted_replica(group);
    const auto loss = [&] { return loss_of(replica(batch.x), batch); };
    EXPECT_THROW(replica.backward(loss(), -1.0), InvalidArgument);
    EXPECT_THROW(replica.backward(loss(), std::numeric_limits<double>::quiet_NaN()),
                 InvalidArgument);
    EXPECT_THROW(replica.backward(loss(), ones({2}, {.device = device_of_rank})), InvalidArgument);
    {
      const auto local = replica.no_sync();
      EXPECT_THROW(replica.backward_without_data(), InvalidArgument);
      loss().backward();
      EXPECT_THROW(replica.backward(loss(), 1.0), InvalidArgument);
      replica.module().zero_grad();
      replica.backward(loss(), 1.0);
    }
    EXPECT_NE(message_of([&] { loss().backward(); }).find("without a weight"), std::string::npos);
    replica.module().parameters().front().set_grad({});  // and not the others
    EXPECT_NE(message_of([&] { replica.backward(loss(), 1.0); }).find("was cleared since"),
              std::string::npos);
    replica.module().zero_grad();
    replica.backward(loss(), 1.0);
    EXPECT_NE(message_of([&] { replica.backward(loss(), 1.0); }).find("to averages, of which"),
              std::string::npos);
    replica.module().zero_grad();
    loss().backward();  // as if nothing had been
    expect_close(gradients_of(replica.module()), gradients_alone(batch), 1e-12, 1e-14);
  });
}

TEST_P(WeightContract, KnowsWhichGradientsItsWeightsBelongTo) {
  run([](Communicator& group) {
    const Batch batch = Batch::of_step(0);
    Replica replica = weighted_replica(group);
    const auto loss = [&] { return loss_of(replica(batch.x), batch); };
    {
      const auto local = replica.no_sync();
      replica.backward(loss(), 3.0);
      EXPECT_THROW(loss().backward(), InvalidArgument);
      replica.module().zero_grad();  // and the weight is gone
      loss().backward();
      EXPECT_THROW(replica.backward(loss(), 1.0), InvalidArgument);
      replica.module().zero_grad();
      // A parameter that never has a gradient was not cleared.
      autograd::LeafNode& leaf = autograd::leaf_of(replica.module().parameters().front());
      const auto hook = leaf.add_hook([](autograd::LeafNode& each) { each.clear_gradient(); });
      for (int i = 0; i < 3; ++i) replica.backward(loss(), 1.0);
      leaf.remove_hook(hook);
      replica.module().zero_grad();
    }
    replica.backward(loss(), 1.0);
    expect_close(gradients_of(replica.module()), gradients_alone(batch), 1e-12, 1e-14);
  });
}

TEST_P(WeightContract, GoesWithGradientsThatAreFilledWithZeros) {
  run([](Communicator& group) {
    const Batch batch = Batch::of_step(0);
    Replica replica = weighted_replica(group);
    optim::SGD optimizer(replica.parameters(), {.lr = 0.0});
    const auto loss = [&] { return loss_of(replica(batch.x), batch); };
    const auto expect_average = [&] {
      expect_close(gradients_of(replica.module()), gradients_alone(batch), 1e-12, 1e-14);
    };
    for (const bool by_optimizer : {false, true}) {
      const auto fill = [&] {
        if (by_optimizer)
          optimizer.zero_grad(false);
        else
          replica.module().zero_grad(false);
      };
      {
        const auto local = replica.no_sync();
        replica.backward(loss(), 3.0);
        fill();  // the micro-batch is given up
        replica.backward(loss(), 2.0);
      }
      replica.backward(loss(), 1.0);
      expect_average();
      optimizer.step();
      fill();  // behind the step
      replica.backward(loss(), 5.0);
      expect_average();
      fill();
      loss().backward();  // and without a weight
      expect_average();
      fill();
    }
    const auto local = replica.no_sync();
    replica.backward(loss(), 1.0);
    autograd::leaf_of(replica.module().parameters().front()).zero_gradient();  // not the others
    EXPECT_NE(message_of([&] { replica.backward(loss(), 1.0); }).find("was cleared since"),
              std::string::npos);
  });
}

TEST_P(WeightContract, TakesZerosForNoneWhereverTheyLie) {
  run([](Communicator& group) {
    const Batch batch = Batch::of_step(0);
    const auto net = make_net(1, DType::f64);
    loss_of(net(batch.x), batch).backward();
    net->zero_grad(false);  // before the reducer gives the gradients another place
    Replica replica(net, share(group));
    replica.backward(loss_of(replica(batch.x), batch), 2.0);
    expect_close(gradients_of(replica.module()), gradients_alone(batch), 1e-12, 1e-14);
    for (Tensor& parameter : replica.module().parameters()) parameter.set_grad(parameter.grad());
    EXPECT_NE(
        message_of([&] { replica.backward(loss_of(replica(batch.x), batch), 2.0); }).find("added"),
        std::string::npos);
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
