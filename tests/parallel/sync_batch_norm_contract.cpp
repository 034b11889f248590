// Batch norm over the batches of several ranks, for every kind of world.

#include "lockstep/tensor/compare.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SyncBatchNormContract);

// How many of 12 images a rank has: the first has none where there are several.
std::pair<std::int64_t, std::int64_t> share_of_batch(int rank, int ranks) {
  const std::int64_t rows = 12;
  if (ranks == 1) return {0, rows};
  const auto first = [&](int r) -> std::int64_t {
    return r <= 1 ? 0 : rows * r / ranks;  // uneven, too
  };
  return {first(rank), rank + 1 == ranks ? rows : first(rank + 1)};
}

// What training with a synchronized norm leaves, and what the whole batch in one process does.
void expect_the_whole_batch(Communicator& group, DType dtype, bool channels_last, bool relu,
                            bool adds, bool tracks = true) {
  const Shape shape{12, 5, 3, 4};
  const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : 3e-2;
  // Far from zero: sums of squares would cancel.
  const Tensor x = (values(shape, 1) + 30.0).to(dtype), dy = values(shape, 2).to(dtype),
               residual = values(shape, 3).to(dtype);
  const auto [first, last] = share_of_batch(group.rank(), group.size());
  const auto part = [&, first = first, last = last](const Tensor& whole) {
    const Tensor own = whole.slice(0, first, last);
    return channels_last ? own.channels_last() : own.clone();
  };
  const auto train = [&](nn::BatchNorm2d& norm, Tensor in, Tensor added, const Tensor& gradient) {
    no_grad([&] {
      norm.weight.copy_(values({5}, 4));
      norm.bias.copy_(values({5}, 5));
    });
    in.set_requires_grad();
    added.set_requires_grad();
    const Tensor y = adds ? norm.forward(in, added) : norm.forward(in);
    y.backward(gradient);
    return std::vector{y, in.grad(), added.grad()};
  };
  const nn::BatchNormLayerOptions options{.channels = 5,
                                          .relu = relu,
                                          .track_running_stats = tracks,
                                          .tensor = {dtype, device_of_rank}};
  const auto whole = nn::make<nn::BatchNorm2d>(options), own = nn::make<nn::BatchNorm2d>(options);
  EXPECT_EQ(nn::convert_sync_batchnorm(*own, share(group)), 1u);
  const auto expected = train(*whole, x.clone(), residual.clone(), dy);
  const auto actual = train(*own, part(x), part(residual), part(dy));
  const auto close = [&](const Tensor& a, const Tensor& b, double limit) {
    ASSERT_EQ(a.shape(), b.shape());
    EXPECT_TRUE(allclose(a.to(DType::f64), b.to(DType::f64), limit, limit));
  };
  close(actual[0], expected[0].slice(0, first, last), tolerance);
  close(actual[1], expected[1].slice(0, first, last), tolerance);
  if (adds) close(actual[2], expected[2].slice(0, first, last), tolerance);
  if (tracks) close(own->running_mean, whole->running_mean, 1e-5);
  if (tracks) close(own->running_var, whole->running_var, 1e-5);
  for (const auto& [mine, all] : {std::pair{own->weight.grad(), whole->weight.grad()},
                                  {own->bias.grad(), whole->bias.grad()}})
    close(all_reduce_async(mine.to(DType::f64), group).wait(), all, 10 * tolerance);
}

TEST_P(SyncBatchNormContract, IsBatchNormOfTheWholeBatch) {
  run([](Communicator& group) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const bool channels_last : {false, true})
        for (const bool relu : {false, true})
          for (const bool adds : {false, true})
            expect_the_whole_batch(group, dtype, channels_last, relu, adds);
    expect_the_whole_batch(group, DType::f32, false, true, false, false);
  });
}

TEST_P(SyncBatchNormContract, AgreesInEvaluationWithoutCommunicating) {
  run([](Communicator& group) {
    const auto norm = nn::make<nn::SyncBatchNorm>(
        nn::BatchNormLayerOptions{.channels = 3, .tensor = {DType::f64, device_of_rank}},
        share(group));
    norm->eval();
    if (group.rank() > 0) return;
    EXPECT_EQ(norm(values({2, 3}, 1)).shape(), (Shape{2, 3}));
    EXPECT_NE(norm->describe().find("synchronized"), std::string::npos);
    const auto of_batch = nn::make<nn::SyncBatchNorm>(
        nn::BatchNormLayerOptions{
            .channels = 3, .track_running_stats = false, .tensor = {DType::f64, device_of_rank}},
        share(group));
    of_batch->eval();
    EXPECT_EQ(of_batch(values({2, 3}, 1)).shape(), (Shape{2, 3}));
  });
}

// Part of a wrapped model, computed again in backward: the same numbers, and statistics that move
// once.
TEST_P(SyncBatchNormContract, StandsInReplicasThatComputeActivationsAgain) {
  run([](Communicator& group) {
    const auto run = [&](bool again) {
      manual_seed(1);
      const auto net = nn::make<NormNet>();
      net->to(device_of_rank);
      nn::convert_sync_batchnorm(*net, share(group));
      struct Outer : nn::Module {
        nn::Child<NormNet> net;
        bool again;
        Outer(nn::ModulePtr<NormNet> inner, bool mode)
            : net(this, "net", std::move(inner)), again(mode) {}
        Tensor forward(const Tensor& x) {
          return again ? nn::checkpoint([this](const Tensor& in) { return net(in); }, x) : net(x);
        }
      };
      DistributedDataParallel<Outer> replica(nn::make<Outer>(net, again), share(group));
      std::vector<double> all;
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        replica(values({4, 6}, 10 * step + group.rank())).square().mean().backward();
        for (const Tensor& parameter : net->parameters())
          for (const double value : parameter.grad().template to_vector<double>())
            all.push_back(value);
      }
      for (const double value : net->norm->running_var.template to_vector<double>())
        all.push_back(value);
      return all;
    };
    EXPECT_EQ(run(true), run(false));
  });
}

// A rank that leaves out a forward would keep the others waiting in theirs.
TEST_P(SyncBatchNormContract, RefusesAStepWithoutDataByName) {
  run([](Communicator& group) {
    const auto net = nn::make<NormNet>();
    net->to(device_of_rank);
    nn::convert_sync_batchnorm(*net, share(group));
    DistributedDataParallel<NormNet> replica(net, share(group));
    if (group.size() == 1) {
      EXPECT_FALSE(replica.backward_without_data());
      return;
    }
    const std::string message =
        message_of<InvalidArgument>([&] { replica.backward_without_data(); });
    EXPECT_THAT(message, ::testing::AllOf(::testing::HasSubstr("norm is a batch norm over the"),
                                          ::testing::HasSubstr("0 rows")));
    const std::int64_t rows = group.rank();  // which is a step that goes
    const Tensor loss = replica(values({rows, 6}, 1)).square().sum();
    EXPECT_NO_THROW(replica.backward(loss, static_cast<double>(rows)));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
