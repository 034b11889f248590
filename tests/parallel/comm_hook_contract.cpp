// What the user may have done with buckets of gradients, on any group.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/delayed_reduction.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommHookContract);

void expect_same_gradients(Communicator& group, const std::vector<double>& gradients) {
  std::size_t hash = 0;
  for (const double value : gradients) hash = hash * 31 + std::hash<double>{}(value);
  const std::string own = std::to_string(hash);
  for (const std::string& other : comm::all_gather_bytes(group, own)) EXPECT_EQ(other, own);
}

std::shared_ptr<PowerSgd> power_sgd(std::int64_t rank, PowerSgdOptions options = {}) {
  options.matrix_approximation_rank = rank;
  return std::make_shared<PowerSgd>(options);
}

TEST_P(CommHookContract, MayDoWhatIsDoneWithoutIt) {
  run([](Communicator& group) {
    const auto without = gradients_by(group, nullptr);
    const auto with =
        gradients_by(group, reduce_buckets_by("mine", [](GradBucket& bucket) -> BucketExchange {
                       co_await bucket.all_reduce(bucket.buffer());
                     }));
    EXPECT_EQ(with, without);
  });
}

TEST_P(CommHookContract, SeesGradientsUnderTheirNames) {
  run([](Communicator& group) {
    Replica replica(make_net(3), share(group), small_buckets);
    std::vector<std::string> seen;
    std::size_t buckets = 0;
    replica.register_comm_hook("names", [&](GradBucket& bucket) -> BucketExchange {
      EXPECT_EQ(bucket.index(), buckets++);
      EXPECT_EQ(&bucket.group(), &group);
      EXPECT_EQ(bucket.gradients().size(), bucket.names().size());
      seen.insert(seen.end(), bucket.names().begin(), bucket.names().end());
      co_await bucket.all_reduce(bucket.buffer(), comm::ReduceOp::sum());
      for (Tensor gradient : bucket.gradients()) gradient.mul_(-1.0 / bucket.group().size());
    });
    const Batch batch = Batch::of_step(0).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
    EXPECT_EQ(buckets, replica.reducer().trace().buckets.size());
    std::vector<std::string> names;
    for (const auto& [name, tensor] : replica.named_parameters()) names.push_back(name);
    std::ranges::sort(seen);
    std::ranges::sort(names);
    EXPECT_EQ(seen, names);
    auto expected = gradients_by(group, nullptr, DType::f64, 1);
    for (double& value : expected) value = -value;
    expect_close(gradients_of(replica.module()), expected, 1e-12, 1e-14);
  });
}

// Each bucket's later collectives go between those of later buckets, in one order on all ranks.
TEST_P(CommHookContract, MayUseSeveralCollectivesOfABucketAtOnceAndInTurn) {
  run([](Communicator& group) {
    const auto hook = reduce_buckets_by("five", [](GradBucket& bucket) -> BucketExchange {
      Tensor all = bucket.buffer();
      const Tensor half = all * 0.5, other = all * 0.5;
      TensorWork first = bucket.all_reduce(half), second = bucket.all_reduce(other);
      all.copy_(co_await first);
      all.add_(co_await second);
      const Tensor mine = ones({1}, all.options()) * double(bucket.group().rank());
      const Tensor ranks = empty({bucket.group().size()}, all.options());
      co_await bucket.all_gather(mine, ranks);
      const Tensor mine_of_all = sum(ranks);
      const Tensor total = co_await bucket.all_reduce(mine_of_all);
      const Tensor part = empty({1}, all.options());
      co_await bucket.reduce_scatter(ranks, part, comm::ReduceOp::sum());
      const double n = bucket.group().size(), r = bucket.group().rank();
      EXPECT_NEAR(total.item(), n * (n - 1) / 2, 1e-12);
      EXPECT_NEAR(part.item(), n * r, 1e-12);
    });
    expect_close(gradients_by(group, hook, DType::f64, 4),
                 gradients_by(group, nullptr, DType::f64, 4), 1e-12, 1e-14);
  });
}

// As docs/data-parallel.md shows it.
TEST_P(CommHookContract, MayTakeTheMajorityOfSigns) {
  run([](Communicator& group) {
    const auto majority = [](GradBucket& bucket) -> BucketExchange {
      Tensor gradients = bucket.buffer();
      const Tensor votes = (sign(gradients) + 1.0).to(DType::u8);
      co_await bucket.all_reduce(votes, comm::ReduceOp::sum());
      gradients.copy_(sign(votes.to(gradients.dtype()) - double(bucket.group().size())));
    };
    const auto signs = gradients_by(group, reduce_buckets_by("majority", majority), DType::f64, 1);
    std::vector<double> votes(signs.size());
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto alone = make_net(3);
      const Batch batch = Batch::of_step(0).part(rank, group.size());
      loss_of(alone->forward(batch.x), batch).backward();
      const auto gradients = gradients_of(*alone);
      for (std::size_t i = 0; i < votes.size(); ++i)
        votes[i] += (gradients[i] > 0) - (gradients[i] < 0);
    }
    for (double& vote : votes) vote = (vote > 0) - (vote < 0);
    EXPECT_EQ(signs, votes);
  });
}

TEST_P(CommHookContract, CompressesToHalfTheBytes) {
  run([](Communicator& group) {
    const auto exact = gradients_by(group, nullptr, DType::f32);
    for (const auto& [dtype, error] : {std::pair{DType::bf16, 8e-3}, {DType::f16, 1e-3}}) {
      const auto close = gradients_by(group, compress_buckets(dtype), DType::f32);
      expect_close(close, exact, error, error * 0.1);
      EXPECT_NE(close, exact);
      expect_same_gradients(group, close);
    }
    Replica replica(make_net(3, DType::f32), share(group), small_buckets);
    const auto bytes = [&] {
      const Batch batch = Batch::of_step(0, DType::f32);
      loss_of(replica(batch.x), batch).backward();
      std::size_t sum = 0;
      for (const BucketTrace& each : replica.reducer().trace().buckets) sum += each.bytes;
      return sum;
    };
    bytes();  // lays the buckets out again
    const std::size_t whole = bytes();
    replica.register_comm_hook(compress_buckets(DType::bf16));
    EXPECT_EQ(bytes() * 2, whole);
    // As BucketExchange shows it.
    const auto halve = [](GradBucket& bucket) -> BucketExchange {
      Tensor half = bucket.buffer().to(DType::bf16);
      co_await bucket.all_reduce(half);
      bucket.buffer().copy_(half);
    };
    EXPECT_EQ(gradients_by(group, reduce_buckets_by("halve", halve), DType::f32),
              gradients_by(group, compress_buckets(DType::bf16), DType::f32));
    const auto as_it_is = gradients_by(group, nullptr, DType::bf16);
    EXPECT_EQ(gradients_by(group, compress_buckets(DType::bf16), DType::bf16), as_it_is);
  });
}

TEST_P(CommHookContract, CountsUnusedParametersAsZero) {
  run([](Communicator& group) {
    auto options = small_buckets;
    options.find_unused_parameters = true;
    Replica plain(make_net(1), share(group), options), hooked(make_net(1), share(group), options);
    hooked.register_comm_hook(power_sgd(16, {.start_iteration = 0, .min_compression_rate = 0.01}));
    for (int step = 0; step < 3; ++step) {
      const std::vector<std::size_t> skipped{std::size_t(1 + (group.rank() + step) % 2)};
      for (Replica* replica : {&plain, &hooked}) {
        const Batch batch = Batch::of_step(step);
        replica->module().zero_grad();
        loss_of((*replica)(batch.x, skipped), batch).backward();
      }
      expect_close(gradients_of(hooked.module()), gradients_of(plain.module()), 1e-9, 1e-11);
    }
  });
}

// Each rank leaves out another layer in the micro-batch before the last.
TEST_P(CommHookContract, TakesZerosForNoneWhereRanksUseOtherParameters) {
  run([](Communicator& group) {
    auto options = small_buckets;
    options.find_unused_parameters = true;
    Replica cleared(make_net(1), share(group), options), filled(make_net(1), share(group), options);
    for (int step = 0; step < 3; ++step) {
      const std::vector<std::size_t> skipped{std::size_t(1 + (group.rank() + step) % 2)};
      const Batch batch = Batch::of_step(step);
      for (Replica* replica : {&cleared, &filled}) {
        replica->module().zero_grad(replica == &cleared);
        {
          const auto local = replica->no_sync();
          loss_of((*replica)(batch.x, skipped), batch).backward();
        }
        loss_of((*replica)(batch.x), batch).backward();
      }
      EXPECT_EQ(gradients_of(filled.module()), gradients_of(cleared.module())) << step;
    }
  });
}

TEST_P(CommHookContract, KeepsTheErrorOfAParameterThatNoRankUses) {
  run([](Communicator& group) {
    auto options = small_buckets;
    options.find_unused_parameters = true;
    Replica replica(make_net(1), share(group), options);
    const auto hook = power_sgd(1, {.start_iteration = 0, .min_compression_rate = 0.5});
    replica.register_comm_hook(hook);
    const auto state_after_step = [&](int step, const std::vector<std::size_t>& skipped) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      replica.module().zero_grad();
      loss_of(replica(batch.x, skipped), batch).backward();
      std::map<std::string, std::vector<double>> state;
      for (const auto& [key, value] : hook->state_dict()) state[key] = value.to_vector<double>();
      return state;
    };
    for (int step = 0; step < 2; ++step) state_after_step(step, {});
    auto before = state_after_step(2, {});
    auto after = state_after_step(3, {1});
    EXPECT_FALSE(replica.parameters()[2].grad().defined());
    for (const char* const kept : {"layers.1.weight.q", "layers.1.weight.error"}) {
      EXPECT_FALSE(before[kept].empty());
      EXPECT_EQ(after[kept], before[kept]) << kept;
    }
    EXPECT_NE(after["layers.2.weight.error"], before["layers.2.weight.error"]);
  });
}

// With as many columns as a matrix has rows nothing is left out.
TEST_P(CommHookContract, OfFullRankIsExact) {
  run([](Communicator& group) {
    const auto exact = gradients_by(group, nullptr, DType::f64, 3);
    const auto hook = power_sgd(16, {.start_iteration = 1, .min_compression_rate = 0.01});
    const auto full = gradients_by(group, hook, DType::f64, 3);
    expect_close(full, exact, 1e-9, 1e-11);
    expect_same_gradients(group, full);
    const auto early = gradients_by(group, power_sgd(1, {.start_iteration = 3}), DType::f64, 3);
    EXPECT_EQ(early, exact);
  });
}

// Losses of a training with compressed gradients; the bytes that its last step sent.
std::pair<std::vector<double>, std::size_t> train_compressed(
    Communicator& group, const std::shared_ptr<BucketReduction>& hook, int steps) {
  Replica replica(make_net(5, DType::f32), share(group), small_buckets);
  if (hook) replica.register_comm_hook(hook);
  optim::SGD optimizer(replica.parameters(), {.lr = 0.05, .momentum = 0.9});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Batch whole = Batch::of_step(step % 4, DType::f32);
    const Batch batch = whole.part(group.rank(), group.size());
    const Tensor loss = loss_of(replica(batch.x), batch);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item());
  }
  expect_equal_replicas(group, replica.module());
  std::size_t bytes = 0;
  for (const BucketTrace& each : replica.reducer().trace().buckets) bytes += each.bytes;
  return {losses, bytes};
}

TEST_P(CommHookContract, OfLowRankTrainsByFeedbackOfItsErrors) {
  run([](Communicator& group) {
    const int steps = device_of_rank.is_cuda() ? 30 : 300;  // a simulated GPU takes its time
    const auto last = [&](const std::vector<double>& losses) {
      double sum = 0;
      for (std::size_t i = losses.size() - 4; i < losses.size(); ++i) sum += losses[i] / 4;
      return comm::all_reduce_scalar(group, sum) / group.size();
    };
    const auto [exact, all_bytes] = train_compressed(group, nullptr, steps);
    const PowerSgdOptions options{.start_iteration = 10, .min_compression_rate = 1.0};
    const auto [low, bytes] = train_compressed(group, power_sgd(2, options), steps);
    PowerSgdOptions no_feedback = options;
    no_feedback.use_error_feedback = false;
    const double without = last(train_compressed(group, power_sgd(2, no_feedback), steps).first);
    EXPECT_LT(bytes * 2, all_bytes);
    EXPECT_LT(last(low), (steps < 300 ? 2 : 3) * last(exact) + 0.01);
    if (steps == 300) {
      EXPECT_LT(last(low) * 2, without);
    }
  });
}

TEST_P(CommHookContract, ForgetsAStepThatOverflows) {
  run([](Communicator& group) {
    const auto hook = power_sgd(2, {.start_iteration = 0, .min_compression_rate = 0.5});
    Replica replica(make_net(5, DType::f32), share(group), small_buckets);
    replica.register_comm_hook(hook);
    const auto backward = [&](double factor) {
      const Batch batch = Batch::of_step(0, DType::f32).part(group.rank(), group.size());
      replica.module().zero_grad();
      (loss_of(replica(batch.x), batch) * factor).backward();
    };
    const auto state = [&] {
      std::vector<std::vector<double>> all;
      for (const auto& [key, value] : hook->state_dict())
        if (key != "iterations") all.push_back(value.to_vector<double>());
      return all;
    };
    for (int step = 0; step < 3; ++step) backward(1);
    const auto before = state();
    ASSERT_FALSE(before.empty());
    // On the last rank alone.
    const bool overflows = group.rank() == group.size() - 1;
    backward(overflows ? std::numeric_limits<double>::infinity() : 1);
    for (const auto& parameter : replica.parameters()) {
      const auto values = parameter.grad().template to_vector<double>();
      EXPECT_TRUE(std::ranges::any_of(values, [](double x) { return !std::isfinite(x); }));
    }
    EXPECT_EQ(state(), before);
    backward(1);
    for (const double value : gradients_of(replica.module())) ASSERT_TRUE(std::isfinite(value));
  });
}

// A finite gradient, whose squares are not.
TEST_P(CommHookContract, OfLowRankGoesOnBehindASpike) {
  run([](Communicator& group) {
    Replica replica(make_net(5, DType::f32), share(group), small_buckets);
    replica.register_comm_hook(power_sgd(2, {.start_iteration = 0, .min_compression_rate = 0.5}));
    for (const double factor : {1.0, 1.0, 1e25, 1.0, 1.0}) {
      const Batch batch = Batch::of_step(0, DType::f32).part(group.rank(), group.size());
      replica.module().zero_grad();
      (loss_of(replica(batch.x), batch) * factor).backward();
      for (const auto& parameter : replica.parameters()) {
        const auto values = parameter.grad().template to_vector<double>();
        EXPECT_TRUE(std::ranges::all_of(values, [](double x) { return std::isfinite(x); }));
        EXPECT_TRUE(std::ranges::any_of(values, [](double x) { return x != 0; })) << factor;
      }
    }
  });
}

// Libraries split long sums among threads.
TEST_P(CommHookContract, GivesRanksWithOtherNumbersOfThreadsTheSameGradients) {
  run([](Communicator& group) {
    const int threads = num_threads();
    set_num_threads(1 + group.rank());
    const auto net = nn::make<nn::Linear>(nn::LinearOptions{.in = 32, .out = 3072, .bias = false});
    net->to(group.device());
    DistributedDataParallel replica(net, share(group));
    replica.register_comm_hook(power_sgd(4, {.start_iteration = 1, .min_compression_rate = 0.5}));
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      manual_seed(static_cast<std::uint64_t>(7 + step * group.size() + group.rank()));
      square(replica(randn({4, 32}, {.device = group.device()}))).sum().backward();
      const Tensor gradient = Tensor(net->weight).grad().to(cpu);
      const std::string own(static_cast<const char*>(gradient.data_ptr()), gradient.nbytes());
      for (const std::string& other : comm::all_gather_bytes(group, own)) EXPECT_TRUE(other == own);
    }
    set_num_threads(threads);
  });
}

TEST_P(CommHookContract, GoesOnWhereASavedOneStopped) {
  run([](Communicator& group) {
    const PowerSgdOptions options{.start_iteration = 1, .min_compression_rate = 0.5};
    const auto train = [&](Replica& replica, int begin, int end) {
      for (int step = begin; step < end; ++step) {
        const Batch batch = Batch::of_step(step, DType::f32).part(group.rank(), group.size());
        replica.module().zero_grad();
        loss_of(replica(batch.x), batch).backward();
      }
    };
    const auto first = power_sgd(1, options);
    Replica whole(make_net(5, DType::f32), share(group), small_buckets);
    whole.register_comm_hook(first);
    train(whole, 0, 4);
    const NamedTensors saved = first->state_dict();
    train(whole, 4, 6);

    const auto second = power_sgd(1, options);
    second->load_state_dict(saved);
    Replica resumed(make_net(5, DType::f32), share(group), small_buckets);
    resumed.register_comm_hook(second);
    train(resumed, 4, 6);
    EXPECT_EQ(gradients_of(resumed.module()), gradients_of(whole.module()));
  });
}

TEST_P(CommHookContract, IsCapturedWithTheStep) {
  run([](Communicator& group) {
    const auto train = [&](const std::shared_ptr<BucketReduction>& hook, bool capture) {
      Replica replica(make_net(5, DType::f32), share(group), small_buckets);
      replica.register_comm_hook(hook);
      optim::SGD optimizer(replica.parameters(), {.lr = 0.05, .momentum = 0.9});
      const auto step = [&](std::span<const Tensor> in) {
        const Tensor loss = loss_of(replica(in[0]), Batch{in[0], in[1]});
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss.detach()};
      };
      StepGraph graph(step, {.group = share(group)});
      std::vector<double> losses;
      for (int i = 0; i < 12; ++i) {
        const Batch batch = Batch::of_step(i, DType::f32).part(group.rank(), group.size());
        const std::vector<Tensor> in{batch.x, batch.target};
        losses.push_back(capture ? graph(in)[0].item() : step(in)[0].item());
      }
      if (capture) {
        EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
      }
      losses.push_back(static_cast<double>(hash_of(replica.module()) % 1'000'000));
      return losses;
    };
    const PowerSgdOptions options{.start_iteration = 3, .min_compression_rate = 0.5};
    EXPECT_EQ(train(compress_buckets(DType::bf16), true),
              train(compress_buckets(DType::bf16), false));
    EXPECT_EQ(train(power_sgd(2, options), true), train(power_sgd(2, options), false));
  });
}

TEST_P(CommHookContract, IsTheSameOnAllRanksOrRefused) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group), small_buckets);
    EXPECT_THROW(replica.register_comm_hook(nullptr), InvalidArgument);
    EXPECT_THROW(replica.register_comm_hook(reduce_scatter_buckets()), InvalidArgument);
    EXPECT_THROW(compress_buckets(DType::f32), InvalidArgument);
    if (group.size() > 1) {
      const auto message = message_of([&] {
        replica.register_comm_hook(group.rank() == 1 ? compress_buckets(DType::f16)
                                                     : compress_buckets(DType::bf16));
      });
      EXPECT_NE(message.find("all-reduce in f16"), std::string::npos) << message;
      EXPECT_NE(message.find("all-reduce in bf16"), std::string::npos) << message;
    }
    // What was refused has changed nothing.
    const Batch batch = Batch::of_step(0).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
    EXPECT_EQ(gradients_of(replica.module()).size(), values_of(replica.module()).size());
  });
}

// Two models may have parameters of the same names, and would get each other's gradients.
TEST_P(CommHookContract, ThatKeepsSomethingBelongsToOneWrapperAtATime) {
  run([](Communicator& group) {
    for (const std::shared_ptr<BucketReduction>& hook :
         {std::shared_ptr<BucketReduction>(std::make_shared<PowerSgd>()),
          std::shared_ptr<BucketReduction>(std::make_shared<DelayedReduction>())}) {
      const auto net = make_net(1);
      Replica replica(net, share(group), small_buckets);
      std::optional<Replica> other(std::in_place, make_net(2), share(group), small_buckets);
      other->register_comm_hook(hook);
      other->register_comm_hook(hook);
      EXPECT_NE(
          message_of([&] { replica.register_comm_hook(hook); }).find("that of another Distributed"),
          std::string::npos);
      other->register_comm_hook(all_reduce_buckets());
      replica.register_comm_hook(hook);
      other.emplace(net, share(group), small_buckets);  // the same parameters, wrapped again
      other->register_comm_hook(hook);
      other.reset();
      Replica last(make_net(3), share(group), small_buckets);
      last.register_comm_hook(hook);
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
