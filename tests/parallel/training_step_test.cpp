#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/sgd.hpp"
#include "parallel/small_training.hpp"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using testing::run_job;
using ::testing::ThrowsMessage;

/// The steps of a training, written out.
std::vector<double> train_by_hand(Training& training, int micro_batch, bool clips) {
  std::vector<double> losses;
  Training& t = training;
  for (const auto& batch : t.loader) {
    const std::int64_t rows = batch[0].size(0);
    const std::int64_t at_once = micro_batch > 0 ? micro_batch : rows;
    double loss = 0;
    for (std::int64_t begin = 0; begin < rows; begin += at_once) {
      const std::int64_t end = std::min(begin + at_once, rows);
      std::optional<Ddp::NoSync> local;
      if (end < rows) local.emplace(t.ddp.no_sync());
      const Tensor mean = nn::functional::mse_loss(t.ddp(batch[0].slice(0, begin, end)),
                                                   batch[1].slice(0, begin, end));
      t.ddp.backward(t.scaler.scale(mean), static_cast<double>(end - begin));
      loss += mean.item() * static_cast<double>(end - begin);
    }
    t.scaler.unscale_(t.optimizer);
    if (clips) optim::clip_grad_norm_(t.ddp.parameters(), 0.5);
    t.scaler.step(t.optimizer);
    t.scaler.update();
    t.average.update();
    t.optimizer.zero_grad();
    t.scheduler.step();
    losses.push_back(loss);
  }
  return losses;
}

TEST(TrainStep, IsTheLoopThatOneWouldWrite) {
  for (const int ranks : {1, 2, 3})
    for (const int micro_batch : {0, 1, 3})
      for (const bool clips : {false, true}) {
        std::vector<std::vector<double>> losses(3);
        std::vector<double> told;
        run_job(ranks, [&](const CommunicatorPtr& group) {
          Training by_hand(group);
          losses[static_cast<std::size_t>(group->rank())] =
              train_by_hand(by_hand, micro_batch, clips);
          std::optional<double> max_norm;
          if (clips) max_norm = 0.5;
          Training other(group, {.max_norm = max_norm, .micro_batch = micro_batch});
          for (auto& batch : other.loader) {
            const StepResult result = other.step(batch);
            EXPECT_EQ(result.grad_norm.defined(), clips);
            if (group->rank() == 0) told.push_back(result.loss.item());
          }
          EXPECT_TRUE(other.weights() == by_hand.weights())
              << ranks << " ranks, micro-batches of " << micro_batch << ", clips " << clips;
          EXPECT_EQ(other.scheduler.steps(), 5);
        });
        for (std::size_t i = 0; i < told.size(); ++i)
          EXPECT_NEAR(
              told[i],
              (losses[0][i] + (ranks > 1 ? losses[1][i] : 0) + (ranks > 2 ? losses[2][i] : 0)) / 4,
              1e-12);
        EXPECT_EQ(told.size(), 5u);
      }
}

TEST(TrainStep, ClipsByTheNormOfAllShards) {
  std::vector<double> norms;
  for (const int stage : {0, 1, 2, 3})
    run_job(2, [&](const CommunicatorPtr& group) {
      manual_seed(1);
      const auto net = nn::make<nn::Linear>(5, 7);
      DistributedDataParallel<nn::Linear> ddp(net, group, {.zero_stage = stage});
      optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
      Step step(ddp, optimizer,
                [&](std::span<const Tensor> in) { return mean(square(ddp(in[0]))); },
                {.max_norm = 0.1});
      const double norm = step({ones({4, 5})}).grad_norm.item();
      if (group->rank() == 0) norms.push_back(norm);
    });
  for (const double norm : norms) EXPECT_NEAR(norm, norms[0], 1e-6 * norms[0]);
}

enum class Weight { rows, number, tensor };

/// Weights and losses of some steps by targets of which many are ignored: of the first batches' two
/// rows all are. By the tokens that count they are those of one process.
std::vector<double> train_on_tokens(int ranks, int micro_batch, Weight weight) {
  std::vector<double> outcome;
  run_job(ranks, [&](const CommunicatorPtr& group) {
    manual_seed(3);
    Generator generator(4);
    const auto net = nn::make<nn::Linear>(5, 3);
    DistributedDataParallel<nn::Linear> ddp(net, group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.3});
    Step step(ddp, optimizer,
              [&](Inputs in) -> WeightedLoss {
                const Tensor loss = nn::functional::cross_entropy(ddp(in[0]), in[1]);
                const Tensor counted = ne(in[1], -100.0).to(DType::f64).sum();
                if (weight == Weight::rows) return loss;
                if (weight == Weight::tensor) return {loss, counted};
                return {loss, counted.item()};
              },
              {.micro_batch = micro_batch});
    const std::int64_t share = 8 / ranks, begin = group->rank() * share;
    for (int i = 0; i < 3; ++i) {
      const Tensor x = randn({8, 5}, {}, generator);
      const Tensor targets = tensor(std::vector<std::int64_t>{-100, -100, 2, 1, -100, 0, 1, 2});
      const double loss =
          step({x.slice(0, begin, begin + share), targets.slice(0, begin, begin + share)})
              .loss.item();
      if (group->rank() == 0) outcome.push_back(loss);
    }
    if (group->rank() == 0)
      for (std::int64_t i = 0; i < 15; ++i) outcome.push_back(net->weight.flatten()[i].item());
  });
  return outcome;
}

TEST(TrainStep, CountsLossesByTheWeightsThatTheyHave) {
  const std::vector<double> expected = train_on_tokens(1, 0, Weight::rows);
  for (const int ranks : {1, 2, 4})
    for (const int micro_batch : {0, 1, 2})
      for (const Weight weight : {Weight::number, Weight::tensor})
        EXPECT_THAT(train_on_tokens(ranks, micro_batch, weight),
                    ::testing::Pointwise(::testing::DoubleNear(1e-6), expected))
            << ranks << " ranks, micro-batches of " << micro_batch;
}

TEST(TrainStep, TakesTheSameStepsCaptured) {
  std::vector<std::string> weights;
  for (const bool capture : {false, true})
    run_job(1, [&](const CommunicatorPtr& group) {
      Training training(
          group,
          {.autocast = DType::bf16, .max_norm = infinity, .micro_batch = 2, .capture = capture});
      for (int epoch = 0; epoch < 3; ++epoch)
        for (auto& batch : training.loader) training.step(batch);
      EXPECT_EQ(training.step.fallback_reason(), "");
      weights.push_back(training.weights());
    });
  EXPECT_TRUE(weights[0] == weights[1]);
}

struct Normed : nn::Module {
  nn::Child<nn::Linear> linear{this, "linear", 5, 4};
  nn::Child<nn::BatchNorm1d> norm{this, "norm", 4};
  Tensor forward(const Tensor& x) { return norm(linear(x)); }
};

TEST(TrainStep, IsCapturedAnewInOtherModesAndWithOtherHooks) {
  std::vector<double> losses[2], statistics[2];
  for (const bool capture : {false, true})
    run_job(1, [&](const CommunicatorPtr& group) {
      manual_seed(3);
      const auto net = nn::make<Normed>();
      DistributedDataParallel<Normed> ddp(net, group);
      optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
      bool doubles = false;
      Step step(ddp, optimizer,
                [&](Inputs in) { return square(ddp(in[0]) * (doubles ? 2.0 : 1.0)).mean(); },
                {.capture = capture});
      Generator generator(4);
      std::uint64_t hook = 0;
      for (int i = 0; i < 24; ++i) {
        if (i == 6) net->norm->eval();
        if (i == 10) net->norm->train();
        if (i == 14)
          hook = net->linear->add_call_hooks(
              {.replace = [](nn::Module&, Inputs, const Tensor& y) { return y * 3.0; }});
        if (i == 18) net->linear->remove_call_hooks(hook);
        if (i == 20) doubles = true, step.reset();
        if (i == 22) {  // within a step
          hook = optimizer.register_step_post_hook([&] { step.reset(); });
        }
        if (i == 23) {  // as it was: captured is what is replayed, on the other ranks too
          net->linear->remove_call_hooks(net->linear->add_call_hooks({.begin = [] {}}));
          EXPECT_EQ(net->linear->call_hooks_signature(), 0U);
        }
        losses[capture].push_back(step({randn({6, 5}, {}, generator)}).loss.item());
        EXPECT_EQ(step.fallback_reason(), "");
        if (i == 22) optimizer.remove_step_post_hook(hook);
      }
      for (const auto& [name, buffer] : net->named_buffers())
        statistics[capture].push_back(buffer.to(DType::f64).sum().item());
    });
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(statistics[0], statistics[1]);
}

TEST(TrainStep, CapturesWeightsThatAreTensorsAndRunsThoseThatAreNumbersEagerly) {
  for (const bool is_tensor : {false, true}) {
    std::vector<double> losses[2];
    for (const bool capture : {false, true})
      run_job(1, [&](const CommunicatorPtr& group) {
        manual_seed(3);
        const auto net = nn::make<nn::Linear>(5, 1);
        DistributedDataParallel<nn::Linear> ddp(net, group);
        optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
        Step step(ddp, optimizer,
                  [&](Inputs in) -> WeightedLoss {
                    const Tensor loss = (square(ddp(in[0])) * in[1]).sum() / in[1].sum();
                    if (is_tensor) return {loss, in[1].sum()};
                    return {loss, 2};
                  },
                  {.micro_batch = 2, .capture = capture});
        Generator generator(4);
        for (int i = 0; i < 6; ++i)
          losses[capture].push_back(
              step({randn({4, 5}, {}, generator), rand({4, 1}, {}, generator)}).loss.item());
        EXPECT_EQ(step.fallback_reason().empty(), is_tensor || !capture) << step.fallback_reason();
      });
    EXPECT_EQ(losses[0], losses[1]);
  }
}

TEST(TrainStep, RefusesWhatItCannotMake) {
  run_job(1, [&](const CommunicatorPtr& group) {
    EXPECT_THAT([&] { Training(group, {.micro_batch = -1}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a micro_batch of -1")));
    EXPECT_THAT([&] { Training(group, {.max_norm = -1.0}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a max_norm of -1")));
    Training training(group);
    EXPECT_THAT([&] { training.step(Inputs{}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a step needs a batch")));
  });
}

TEST(TrainStep, WhoseLossThrowsInAPartLeavesNothingToTheNextBatch) {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 2}) {
      std::vector<std::vector<double>> weights(2);
      for (const bool throws : {false, true})
        run_job(ranks, [&](const CommunicatorPtr& group) {
          manual_seed(1);
          const auto net = nn::make<nn::Linear>(3, 2);
          DistributedDataParallel<nn::Linear> ddp(net, group, {.zero_stage = stage});
          optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
          int parts = 0;
          Step step(ddp, optimizer,
                    [&](std::span<const Tensor> in) {
                      if (throws && ++parts == 2) throw std::runtime_error("a bad row");
                      return mean(square(ddp(in[0])));
                    },
                    {.micro_batch = 2});
          if (throws) {
            EXPECT_THROW(step({full({4, 3}, 100.0)}), std::runtime_error);
          }
          step({ones({4, 3})});
          const auto whole = ddp.whole_parameters();
          if (group->rank() == 0) weights[throws] = net->weight.to(DType::f64).to_vector<double>();
        });
      EXPECT_EQ(weights[0], weights[1]) << ranks << " ranks, zero_stage " << stage;
    }
}

TEST(TrainStep, RefusesMicroBatchesOfInputsWithUnlikeRows) {
  run_job(1, [&](const CommunicatorPtr& group) {
    DistributedDataParallel<nn::Linear> ddp(nn::make<nn::Linear>(3, 2), group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    const auto loss = [&](std::span<const Tensor> in) { return mean(ddp(in[0])); };
    Step in_parts(ddp, optimizer, loss, {.micro_batch = 2});
    EXPECT_THAT(
        [&] {
          in_parts({ones({4, 3}), ones({6})});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("the first has shape [4, 3], number 2 [6]")));
    Step whole(ddp, optimizer, loss);
    EXPECT_NO_THROW(whole({ones({4, 3}), scalar(1.0)}));
  });
}

// A baseline, before there is an average.
TEST(TrainStep, MayBeEvaluatedBeforeTheFirst) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Training training(group);
    const std::string before = training.weights();
    training.loss();
    EXPECT_TRUE(training.weights() == before);
    for (auto& batch : training.loader) training.step(batch);
    EXPECT_EQ(training.average.updates(), 5);
  });
}

TEST(TrainStep, EvaluationsLeaveTrainingAsItWas) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int zero : {0, 1, 2}) {
      std::map<bool, std::string> weights;
      for (const bool evaluates : {false, true})
        run_job(2, [&](const CommunicatorPtr& group) {
          Training training(group, {.max_norm = 1.0}, dtype, zero);
          for (int epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : training.loader) {
              training.step(batch);
              const PhiloxState place = default_generator().state();
              if (evaluates) training.loss();
              default_generator().set_state(place);  // as the loop does
              EXPECT_TRUE(training.net->is_training() && training.net->drop->is_training());
              EXPECT_FALSE(training.net->frozen->is_training());
            }
          const auto whole = training.ddp.whole_parameters();
          if (group->rank() == 0) weights[evaluates] = training.weights();
        });
      EXPECT_TRUE(weights[true] == weights[false]) << dtype << ", zero_stage " << zero;
    }
}

/// A graph's batch: edges, which may be none, and labels of its nodes.
struct GraphLoss {
  Net& net;
  Ddp& ddp;
  bool is_weighed;
  WeightedLoss operator()(Inputs in) const {
    const Tensor loss = nn::functional::mse_loss(ddp(in[1]), in[1].slice(1, 0, 1));
    if (!is_weighed) return loss;
    return {loss, full({}, static_cast<double>(in[1].size(0)))};
  }
};

// The rows of its first tensor say nothing of what a batch counts.
TEST(TrainStep, CountsABatchByItsWeightWhereItsFirstTensorHasNoRows) {
  std::map<std::int64_t, std::string> weights;
  for (const std::int64_t edges : {0, 3})
    run_job(2, [&](const CommunicatorPtr& group) {
      const auto net = make_net();
      net->eval();
      Ddp ddp(net, group);
      optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.1});
      Step step(ddp, optimizer, GraphLoss{*net, ddp, true});
      const std::int64_t own = group->rank() == 0 ? 2 : edges;
      const Tensor nodes = samples().fetch(std::vector<std::int64_t>{1, 2, 3, 4})[0];
      EXPECT_GT(step({zeros({own, 2}), nodes * double(1 + group->rank())}).loss.item(), 0);
      std::string bytes;
      for (const auto& [name, tensor] : net->state_dict())
        bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
      if (group->rank() == 0) weights[edges] = bytes;
    });
  EXPECT_TRUE(weights[0] == weights[3]);
}

TEST(TrainStep, WarnsOnceWhereTensorsOfABatchDifferInRows) {
  ::testing::internal::CaptureStderr();
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto net = make_net();
    Ddp ddp(net, group);
    optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.1});
    Step step(ddp, optimizer, GraphLoss{*net, ddp, false});
    for (int i = 0; i < 3; ++i) step({zeros({3, 2}), ones({4, 6}), full({}, 0.5)});
  });
  const std::string text = ::testing::internal::GetCapturedStderr();
  std::size_t count = 0;
  for (auto at = text.find("WeightedLoss"); at != text.npos; at = text.find("WeightedLoss", at + 1))
    ++count;
  EXPECT_EQ(count, 2u) << text;
}

}  // namespace
}  // namespace lockstep::train
