#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/batch_norm.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/step.hpp"
#include "lockstep/train/step_graph.hpp"

// Buffers that ranks send around at the beginning of a step, where some ranks replay it and others
// run it.

namespace lockstep::train {
namespace {

using testing::run_job;

/// Of buffers in two dtypes, which are sent by themselves.
struct NormTraining {
  explicit NormTraining(const CommunicatorPtr& group)
      : net(nn::make<nn::BatchNorm1d>(nn::BatchNormLayerOptions{.channels = 3})),
        ddp(net, group),
        optimizer(ddp.named_parameters(), {.lr = 0.1}) {}
  Tensor loss(const Tensor& x) { return (ddp(x) - 0.3).square().mean(); }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const auto& named : {net->named_parameters(), net->named_buffers()})
      for (const auto& [name, tensor] : named)
        for (const double each : tensor.to(DType::f64).to_vector<double>()) all.push_back(each);
    return all;
  }

  nn::ModulePtr<nn::BatchNorm1d> net;
  DistributedDataParallel<nn::BatchNorm1d> ddp;
  optim::SGD optimizer;
};

Tensor batch_of(int number, const Communicator& group, std::int64_t rows) {
  Generator generator(static_cast<std::uint64_t>(10 * number + group.rank()));
  return randn({rows, 3}, {}, generator);
}

/// What the second rank has after steps of which it makes number 6 on its own number of rows, and
/// whether the first rank replayed at last.
std::vector<double> train_steps_of_uneven_rows(bool captures, std::int64_t rows) {
  std::vector<double> values;
  run_job(2, [&](const CommunicatorPtr& group) {
    NormTraining training(group);
    Step step(training.ddp, training.optimizer,
              [&](std::span<const Tensor> in) { return training.loss(in[0]); },
              {.capture = captures});
    for (int i = 0; i < 10; ++i)
      step({batch_of(i, *group, i == 6 && group->rank() == 1 ? rows : 4)});
    EXPECT_EQ(step.fallback_reason(), "");
    if (group->rank() == 1) values = training.values();
  });
  return values;
}

TEST(CapturedBuffers, AreSentBesideARankThatRunsEagerly) {
  EXPECT_EQ(train_steps_of_uneven_rows(true, 3), train_steps_of_uneven_rows(false, 3));
}

/// Steps in two parts. The first rank's cannot be captured, as their second part reads its loss.
std::vector<double> train_in_parts(bool captures) {
  std::vector<double> values;
  run_job(2, [&](const CommunicatorPtr& group) {
    NormTraining training(group);
    int parts = 0;
    Step step(training.ddp, training.optimizer,
              [&](std::span<const Tensor> in) {
                const Tensor loss = training.loss(in[0]);
                if (++parts % 2 == 0 && group->rank() == 0) static_cast<void>(loss.item());
                return loss;
              },
              {.micro_batch = 2, .capture = captures});
    for (int i = 0; i < 8; ++i) {
      parts = 0;
      step({batch_of(i, *group, 4)});
    }
    EXPECT_EQ(step.fallback_reason().empty(), !captures || group->rank() == 1);
    if (group->rank() == 1) values = training.values();
  });
  return values;
}

TEST(CapturedBuffers, AreSentWhereACaptureFailedInTheMidstOfAStep) {
  EXPECT_EQ(train_in_parts(true), train_in_parts(false));
}

/// Who calls a graph in the place of the step.
enum class Captures { none, first, both_and_first_fails };

/// Steps that begin outside of what is captured, but for those before `begin`.
std::vector<double> train_with_parts_outside(Captures captures, int begin, bool fills = false) {
  std::vector<double> values;
  run_job(2, [&](const CommunicatorPtr& group) {
    const bool is_first = group->rank() == 0;
    const bool fails = captures == Captures::both_and_first_fails && is_first;
    NormTraining training(group);
    const StepGraph::Step end = [&](std::span<const Tensor> in) {
      const Tensor loss = training.loss(in[0]);
      loss.backward();
      if (fails) static_cast<void>(loss.item());
      training.optimizer.step();
      training.optimizer.zero_grad(!fills);
      return std::vector<Tensor>{};
    };
    StepGraph graph(end, {.group = group});
    const bool calls_graph =
        captures == Captures::first ? is_first : captures == Captures::both_and_first_fails;
    for (int i = 0; i < 12; ++i) {
      if (i >= begin) {
        const auto local = training.ddp.no_sync();
        training.loss(batch_of(2 * i, *group, 4)).backward();
      }
      const Tensor x = batch_of(2 * i + 1, *group, 4);
      calls_graph ? graph({x}) : end(std::vector{x});
    }
    EXPECT_EQ(graph.replayed(), calls_graph && !fails) << graph.fallback_reason();
    if (!is_first) values = training.values();
  });
  return values;
}

TEST(CapturedBuffers, AreSentByPartsOutsideAsTheLaunchBeforeLeftIt) {
  for (const int begin : {0, 6})
    for (const bool fills : {false, true})
      EXPECT_EQ(train_with_parts_outside(Captures::first, begin, fills),
                train_with_parts_outside(Captures::none, begin, fills));
}

TEST(CapturedBuffers, AreSentByPartsOutsideWhereACaptureFailed) {
  EXPECT_EQ(train_with_parts_outside(Captures::both_and_first_fails, 0),
            train_with_parts_outside(Captures::none, 0));
}

}  // namespace
}  // namespace lockstep::train
