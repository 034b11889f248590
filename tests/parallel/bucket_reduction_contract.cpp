// What reductions of buckets that share out the averages must give, on any group.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BucketReductionContract);

// A net whose gradients a reducer averages, without the wrapper.
struct Reduced {
  Reduced(Communicator& group, std::shared_ptr<BucketReduction> reduction, std::size_t cap,
          DType dtype, bool may_be_unused = false)
      : net(make_net(1, dtype)),
        reducer(net->named_parameters(), share(group),
                {.bucket_caps = {cap, cap},
                 .find_unused_parameters = may_be_unused,
                 .reduction = std::move(reduction)}) {}

  void backward(const Batch& batch, Reducer::Mode mode = Reducer::Mode::reduce,
                const std::vector<std::size_t>& skipped = {}) {
    const auto record = [&] {
      const autograd::TagGuard scope = reducer.record_forward(mode);
      return loss_of(net->forward(batch.x, skipped), batch);
    };
    record().backward();
  }

  nn::ModulePtr<Net> net;
  Reducer reducer;
};

std::string bytes_of(const Tensor& tensor) {
  const Tensor here = tensor.to(cpu).contiguous();
  return {static_cast<const char*>(here.data_ptr()), here.nbytes()};
}

// Each parameter's average, gathered from the ranks' parts.
std::vector<Tensor> gathered_averages(const Reduced& shared, Communicator& group) {
  std::vector<Tensor> all(shared.net->parameters().size());
  const auto& buckets = shared.reducer.buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Tensor& part = shared.reducer.averages(b);
    const Tensor whole = empty({part.numel() * group.size()}, part.options());
    group
        .all_gather({part.data_ptr(), part.numel(), part.dtype()},
                    {whole.data_ptr(), whole.numel(), whole.dtype()})
        .wait();
    for (std::size_t k = 0; k < buckets[b].parameters.size(); ++k) {
      const std::size_t index = buckets[b].parameters[k];
      const std::int64_t begin = buckets[b].offsets[k];
      all[index] = whole.slice(0, begin, begin + shared.net->parameters()[index].numel());
    }
  }
  return all;
}

// Sums of more than two numbers depend on the order, which is NCCL's own.
bool sums_alike(const Communicator& group) {
  return group.backend() != "nccl" || group.size() <= 2;
}

void expect_same_averages(const Reduced& whole, const Reduced& shared, Communicator& group) {
  const auto averages = gathered_averages(shared, group);
  const auto parameters = whole.net->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (sums_alike(group)) {
      ASSERT_TRUE(bytes_of(averages[i]) == bytes_of(parameters[i].grad())) << "parameter " << i;
    } else {
      expect_close(averages[i].to_vector<double>(), parameters[i].grad().to_vector<double>(), 2e-2,
                   1e-4);
    }
  }
  for (const Tensor& parameter : shared.net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_P(BucketReductionContract, GathersToTheBitsOfAnAllReduce) {
  run([](Communicator& group) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const std::size_t cap : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
        Reduced whole(group, all_reduce_buckets(), cap, dtype);
        Reduced shared(group, reduce_scatter_buckets(), cap, dtype);
        for (int step = 0; step < 3; ++step) {
          const Batch batch = Batch::of_step(step, dtype).part(group.rank(), group.size());
          whole.net->zero_grad();
          whole.backward(batch);
          shared.backward(batch);
          expect_same_averages(whole, shared, group);
        }
      }
  });
}

TEST_P(BucketReductionContract, TakesWhatWasAccumulatedBefore) {
  run([](Communicator& group) {
    Reduced whole(group, all_reduce_buckets(), 1000, DType::f64);
    Reduced shared(group, reduce_scatter_buckets(), 1000, DType::f64);
    for (int step = 0; step < 4; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      const auto mode = step % 2 ? Reducer::Mode::reduce : Reducer::Mode::accumulate;
      if (step == 2) whole.net->zero_grad();
      whole.backward(batch, mode);
      shared.backward(batch, mode);
    }
    expect_same_averages(whole, shared, group);
  });
}

TEST_P(BucketReductionContract, CountsUnusedParametersAsZero) {
  run([](Communicator& group) {
    Reduced shared(group, reduce_scatter_buckets(), 1, DType::f64, true);
    for (int step = 0; step < 2; ++step)
      shared.backward(Batch::of_step(step), Reducer::Mode::reduce, {1});
    const auto averages = gathered_averages(shared, group);
    const auto is_zero = [](double value) { return value == 0.0; };
    EXPECT_TRUE(std::ranges::all_of(averages[2].to_vector<double>(), is_zero));
    EXPECT_FALSE(std::ranges::all_of(averages[0].to_vector<double>(), is_zero));
  });
}

TEST_P(BucketReductionContract, TakesGradientsThatTensorHooksSaw) {
  run([](Communicator& group) {
    Reduced whole(group, all_reduce_buckets(), 1000, DType::f64);
    Reduced shared(group, reduce_scatter_buckets(), 1000, DType::f64);
    for (const Tensor& parameter : shared.net->parameters())
      parameter.register_hook([](const Tensor& gradient) { return gradient * 1.0; });
    for (int step = 0; step < 4; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      whole.net->zero_grad();
      whole.backward(batch);
      shared.backward(batch);
      expect_same_averages(whole, shared, group);
    }
  });
}

// SGD on this rank's part of a bucket, and the whole of it again from all ranks' parts: what an
// optimizer with shared-out state does.
void update_parts(Reduced& shared, Communicator& group, double lr) {
  const NoGradGuard no_recording;
  const auto& buckets = shared.reducer.buckets();
  auto parameters = shared.net->parameters();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Tensor values = zeros({buckets[b].numel}, {buckets[b].dtype, buckets[b].device});
    const auto place_of = [&](std::size_t k) {
      const std::int64_t begin = buckets[b].offsets[k];
      const Tensor& parameter = parameters[buckets[b].parameters[k]];
      return values.slice(0, begin, begin + parameter.numel()).reshape(parameter.shape());
    };
    for (std::size_t k = 0; k < buckets[b].parameters.size(); ++k)
      place_of(k).copy_(parameters[buckets[b].parameters[k]]);
    const Tensor& averages = shared.reducer.averages(b);
    const std::int64_t part = averages.numel();
    Tensor own = values.slice(0, part * group.rank(), part * (group.rank() + 1));
    own.add_(averages * -lr);
    group
        .all_gather({own.data_ptr(), part, own.dtype()},
                    {values.data_ptr(), values.numel(), values.dtype()})
        .wait();
    for (std::size_t k = 0; k < buckets[b].parameters.size(); ++k)
      parameters[buckets[b].parameters[k]].copy_(place_of(k));
  }
}

TEST_P(BucketReductionContract, TrainsWithAnOptimizerThatIsSharedOut) {
  run([](Communicator& group) {
    Reduced shared(group, reduce_scatter_buckets(), 1000, DType::f64);
    const auto alone = make_net(1);
    for (int step = 0; step < 4; ++step) {
      shared.backward(Batch::of_step(step).part(group.rank(), group.size()));
      update_parts(shared, group, 0.1);
      shared.net->zero_grad();
      loss_of(alone->forward(Batch::of_step(step).x), Batch::of_step(step)).backward();
      const NoGradGuard no_recording;
      for (Tensor& parameter : alone->parameters()) parameter.add_(parameter.grad() * -0.1);
      alone->zero_grad();
    }
    expect_close(values_of(*shared.net), values_of(*alone), 1e-9, 1e-11);
    expect_equal_replicas(group, *shared.net);
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
