// Models whose parameters have several dtypes, over any group.

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/optim/sgd.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MixedDtypesContract);

constexpr std::array dtypes{DType::bf16, DType::f32, DType::f16, DType::f64};

/// A branch of two layers in each dtype. Layers of all branches are registered, and run, in turns,
/// so that gradients of all dtypes become ready in turns.
struct Branches : nn::Module {
  Branches() : layers(this, "layers") {
    for (std::size_t i = 0; i < 2 * dtypes.size(); ++i)
      layers->append(nn::make<nn::Linear>(i < dtypes.size() ? 6 : 9, i < dtypes.size() ? 9 : 3,
                                          TensorOptions{.dtype = dtypes[i % dtypes.size()]}));
  }

  /// @param x [N, 6] in f64. @return the branches' results, [N, 3] in f64 each
  std::vector<Tensor> forward(const Tensor& x) {
    std::vector<Tensor> y;
    for (const DType dtype : dtypes) y.push_back(x.to(dtype));
    for (std::size_t i = 0; i < layers->size(); ++i) {
      Tensor& own = y[i % dtypes.size()];
      own = tanh(layers[i]->forward(own));
    }
    for (Tensor& own : y) own = own.to(DType::f64);
    return y;
  }

  nn::Child<nn::ModuleList<nn::Linear>> layers;
};

nn::ModulePtr<Branches> make_branches() {
  auto net = nn::make<Branches>();
  fill(*net, 3);
  net->to(device_of_rank);
  return net;
}

// Of each branch on its own: what rounds in one does not reach the others.
Tensor loss_of_all(const std::vector<Tensor>& predictions, const Batch& batch) {
  Tensor loss = mse_loss(predictions.front(), batch.target);
  for (std::size_t i = 1; i < predictions.size(); ++i)
    loss = loss + mse_loss(predictions[i], batch.target);
  return loss;
}

/// Of the largest value of a tensor: a few roundings to the dtype.
double rounding_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-14;
    case DType::f32: return 4e-6;
    case DType::f16: return 4e-3;
    default: return 3e-2;
  }
}

void expect_close_by_dtype(const Tensor& actual, const Tensor& expected, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(actual.dtype(), expected.dtype());
  const auto values = expected.to_vector<double>();
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  expect_close(actual.to_vector<double>(), values, 0,
               rounding_tolerance(expected.dtype()) * largest);
}

// Each has one dtype, all are there, and each parameter is in one.
void expect_plan_by_dtype(const Reducer& reducer, const NamedTensors& parameters) {
  std::vector<int> seen(parameters.size(), 0);
  for (const Bucket& bucket : reducer.buckets())
    for (const std::size_t index : bucket.parameters) {
      EXPECT_EQ(bucket.dtype, parameters[index].second.dtype()) << parameters[index].first;
      ++seen[index];
    }
  EXPECT_THAT(seen, ::testing::Each(1));
  EXPECT_GE(reducer.buckets().size(), dtypes.size());
}

using MixedReplica = DistributedDataParallel<Branches>;

MixedReplica::Options with_buckets(std::size_t bytes, int zero_stage = 0) {
  return {.bucket_bytes = bytes, .first_bucket_bytes = bytes, .zero_stage = zero_stage};
}

TEST_P(MixedDtypesContract, AveragesGradientsOfEachDtypeAsOneProcessOnTheUnion) {
  run([](Communicator& group) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 8, std::size_t{25} << 20}) {
      const auto alone = make_branches();
      MixedReplica replica(make_branches(), share(group), with_buckets(bytes));
      const NamedTensors own = replica.module().named_parameters(),
                         expected = alone->named_parameters();
      for (int step = 0; step < 3; ++step) {  // the second one lays buckets out anew
        const Batch whole = Batch::of_step(step), part = whole.part(group.rank(), group.size());
        alone->zero_grad();
        loss_of_all(alone->forward(whole.x), whole).backward();
        replica.module().zero_grad();
        loss_of_all(replica(part.x), part).backward();
        expect_plan_by_dtype(replica.reducer(), own);
        for (std::size_t i = 0; i < own.size(); ++i)
          expect_close_by_dtype(own[i].second.grad(), expected[i].second.grad(),
                                own[i].first + ", step " + std::to_string(step));
      }
    }
  });
}

// Parameters after some steps.
std::vector<Tensor> train_mixed(Communicator& group, int zero_stage) {
  MixedReplica replica(make_branches(), share(group), with_buckets(1 << 8, zero_stage));
  optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    const Batch batch = own_part(group, step);
    loss_of_all(replica(batch.x), batch).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  const auto all = replica.whole_parameters();
  expect_equal_replicas(group, replica.module());
  std::vector<Tensor> values;
  for (const Tensor& parameter : replica.module().parameters())
    values.push_back(parameter.detach().clone());
  return values;
}

TEST_P(MixedDtypesContract, SharesOutStatesOfEachDtype) {
  run([](Communicator& group) {
    const auto whole = train_mixed(group, 0);
    for (const int stage : {1, 2, 3}) {
      const auto shared = train_mixed(group, stage);
      for (std::size_t i = 0; i < whole.size(); ++i)
        expect_close_by_dtype(
            shared[i], whole[i],
            "stage " + std::to_string(stage) + ", parameter " + std::to_string(i));
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
