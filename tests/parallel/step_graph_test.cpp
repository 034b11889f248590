#include "lockstep/train/step_graph.hpp"

#include <array>

#include <gmock/gmock.h>

#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/host_copy.hpp"
#include "parallel/ranks.hpp"
#include "support/resident_bytes.hpp"
#include "support/timeout_multiplier.hpp"

namespace lockstep::parallel::testing {
namespace {

constexpr int dropout_steps = 8;

/// A model with dropout, trained eagerly or captured.
template <class Optimizer = optim::AdamW>
std::vector<double> train_with_dropout(bool capture,
                                       const typename Optimizer::Options& options = {.lr = 0.1},
                                       std::int64_t out = 3) {
  manual_seed(1);
  const auto layer = nn::make<nn::Linear>(6, out);
  Optimizer optimizer(layer->named_parameters(), options);
  optim::LRScheduler scheduler(optimizer, optim::LinearLR{.iterations = dropout_steps});
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    const Tensor loss = dropout(layer(in[0]), 0.3, true).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss};
  };
  StepGraph graph(step);
  std::vector<double> losses;
  for (int i = 0; i < dropout_steps; ++i) {
    const Tensor x = values({4, 6}, i).to(DType::f32);
    const Tensor loss = (capture ? graph({x}) : step(std::vector{x}))[0];
    losses.push_back(loss.item());
    EXPECT_EQ(loss.requires_grad(), !capture);
    scheduler.step();
  }
  EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
  for (const double value : layer->parameters()[0].to_vector<double>()) losses.push_back(value);
  return losses;
}

TEST(StepGraph, GivesTheBitsOfTheEagerStep) {
  EXPECT_EQ(train_with_dropout(true), train_with_dropout(false));
}

TEST(StepGraph, RoundsStatesInFewBitsAsTheEagerStepDoes) {
  for (const auto format : {optim::StateFormat::bf16, optim::StateFormat::blockwise_8bit}) {
    const optim::AdamWOptions options{.lr = 0.1, .state_format = format};
    EXPECT_EQ(train_with_dropout(true, options, 800), train_with_dropout(false, options, 800))
        << name_of(format);
    const optim::LAMBOptions lamb{.lr = 0.1, .state_format = format};
    EXPECT_EQ(train_with_dropout<optim::LAMB>(true, lamb, 800),
              train_with_dropout<optim::LAMB>(false, lamb, 800));
    const optim::MuonOptions muon{.lr = 0.1, .state_format = format};
    EXPECT_EQ(train_with_dropout<optim::Muon>(true, muon, 800),
              train_with_dropout<optim::Muon>(false, muon, 800));
  }
}

// What its former graph has left, results and gradients, is of no use to anybody.
TEST(StepGraph, HoldsNoMoreHoweverOftenItIsCapturedAnew) {
  Tensor weight = ones({64, (1 << 16) / lockstep::testing::timeout_multiplier}).set_requires_grad(),
         other = ones({4}).set_requires_grad();
  optim::SGD optimizer({weight, other}, {.lr = 1e-3});
  StepGraph graph(
      [&](std::span<const Tensor> in) {
        optimizer.zero_grad();
        const Tensor y = matmul(in[0], weight);
        (mean(y) + mean(in[0].slice(1, 0, 4) * other)).backward();
        optimizer.step();
        return std::vector{y};
      },
      {.num_warmup_iters = 1});
  const Tensor x = values({2, 64}, 1).to(DType::f32);
  std::int64_t early = 0;
  for (int capture = 0; capture < 9; ++capture) {
    other.set_requires_grad(capture % 2 == 1);
    for (int i = 0; i < 54; ++i) graph({x});
    EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
    if (capture == 2) early = lockstep::testing::resident_bytes();
  }
  EXPECT_LT(lockstep::testing::resident_bytes(),
            early + static_cast<std::int64_t>(weight.nbytes()));
}

TEST(StepGraph, AllocatesNothingInAReplay) {
  const auto layer = nn::make<nn::Linear>(64, 64);
  optim::AdamW optimizer(layer->named_parameters());
  StepGraph graph([&](std::span<const Tensor> in) {
    const Tensor loss = layer(in[0]).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss};
  });
  const Tensor x = values({32, 64}, 1).to(DType::f32);
  for (int i = 0; i < 5; ++i) graph({x});
  ASSERT_TRUE(graph.replayed()) << graph.fallback_reason();
  const auto before = memory_stats(cpu).allocations;
  graph({x});
  EXPECT_EQ(memory_stats(cpu).allocations, before);
}

TEST(StepGraph, RunsEagerlyWhatReadsValuesAndSaysSo) {
  const auto reason_of = [](const StepGraph::Step& step) {
    StepGraph graph(step, {.num_warmup_iters = 1});
    const Tensor x = values({4}, 1);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(graph({x})[0].to_vector<double>(), x.to_vector<double>());
    EXPECT_FALSE(graph.replayed());
    return graph.fallback_reason();
  };
  using In = std::span<const Tensor>;
  const auto read = ::testing::HasSubstr("values are read on the host");
  EXPECT_THAT(reason_of([](In in) {
                static_cast<void>(in[0].sum().item());
                return std::vector{in[0]};
              }),
              read);
  EXPECT_THAT(reason_of([](In in) {
                static_cast<void>(in[0].data<double>());
                return std::vector{in[0]};
              }),
              read);
  EXPECT_THAT(reason_of([](In in) {
                const HostCopy copy(in[0]);
                return std::vector{in[0]};
              }),
              ::testing::HasSubstr("HostCopy"));
  EXPECT_THAT(reason_of([](In in) { return std::vector{in[0] * tensor({1.0})}; }),
              ::testing::HasSubstr("made of values of the host"));
  double value = 1;
  EXPECT_THAT(reason_of([&](In in) {
                return std::vector{in[0] * from_blob(&value, {}, {.dtype = DType::f64})};
              }),
              ::testing::HasSubstr("memory of the program"));
  EXPECT_THAT(reason_of([](In in) {
                manual_seed(4);
                return std::vector{in[0] + 0.0 * rand({4}, {.dtype = DType::f64})};
              }),
              ::testing::HasSubstr("seeds the generator"));
}

TEST(StepGraph, RunsEagerlyWhereUpdatesOfAStepHaveDifferentRates) {
  for (const bool by_schedule : {true, false}) {
    const auto train_twice = [&](bool capture) {
      Tensor weight = ones({3}).set_requires_grad();
      optim::SGD optimizer({weight}, {.lr = 0.1});
      optim::LRScheduler scheduler(optimizer, optim::ExponentialLR{.gamma = 0.5});
      const auto update = [&](const Tensor& x) {
        (x * weight).square().sum().backward();
        optimizer.step();
        optimizer.zero_grad();
      };
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        update(in[0]);
        by_schedule ? scheduler.step() : optimizer.set_lr(optimizer.lr() * 0.5);
        update(in[0]);
        return std::vector<Tensor>{};
      };
      StepGraph graph(step, {.num_warmup_iters = 1});
      for (int i = 0; i < 4; ++i) {
        const Tensor x = values({3}, i).to(DType::f32);
        capture ? graph({x}) : step(std::array{x});
      }
      EXPECT_FALSE(graph.replayed());
      return weight.to_vector<double>();
    };
    EXPECT_EQ(train_twice(true), train_twice(false)) << by_schedule;
  }
}

TEST(StepGraph, TakesItsResultsAsTheNextInputs) {
  const StepGraph::Step step = [](std::span<const Tensor> in) {
    return std::vector{in[0] * 0.5 + in[1], in[0]};  // the second is the input itself
  };
  StepGraph graph(step, {.num_warmup_iters = 1});
  std::vector<Tensor> eager{values({4}, 1), values({4}, 2)}, captured = eager;
  for (int i = 0; i < 6; ++i) {
    eager = step(eager);
    captured = graph(captured);
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_EQ(eager[k].to_vector<double>(), captured[k].to_vector<double>()) << i;
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

TEST(StepGraph, IsCapturedAnewForAHookThatWasAddedSince) {
  const auto weights_with = [](bool capture) {
    Tensor weight = ones({3}).set_requires_grad();
    optim::SGD optimizer({weight}, {.lr = 0.1});
    const StepGraph::Step step = [&](std::span<const Tensor> in) {
      (in[0] * weight).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.num_warmup_iters = 1});
    for (int i = 0; i < 8; ++i) {
      if (i == 4)
        autograd::leaf_of(weight).add_hook(
            [](autograd::LeafNode& leaf) { leaf.set_gradient(leaf.gradient() * 3.0); });
      const Tensor x = values({3}, i).to(DType::f32);
      capture ? graph({x}) : step(std::array{x});
    }
    EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
    return weight.to_vector<double>();
  };
  EXPECT_EQ(weights_with(true), weights_with(false));
}

TEST(StepGraph, PassesOnWhatAKernelThrowsInAReplay) {
  const Tensor table = values({3, 2}, 1);
  StepGraph graph([&](std::span<const Tensor> in) { return std::vector{embedding(in[0], table)}; },
                  {.num_warmup_iters = 1});
  const Tensor good = tensor(std::vector<std::int64_t>{2, 0});
  for (int i = 0; i < 3; ++i) graph({good});
  ASSERT_TRUE(graph.replayed()) << graph.fallback_reason();
  EXPECT_THROW(graph({tensor(std::vector<std::int64_t>{2, 7})}), InvalidArgument);
  EXPECT_EQ(graph({good})[0].to_vector<double>(), embedding(good, table).to_vector<double>());
}

/// Trains a table, with one batch among the others that the step cannot take; where the schedule
/// and the average are then, and the weights.
std::vector<double> train_past_a_bad_batch(bool capture) {
  manual_seed(1);
  const auto table = nn::make<nn::Embedding>(5, 3);
  optim::SGD optimizer(table->named_parameters(), {.lr = 0.5});
  optim::LRScheduler scheduler(optimizer, optim::LinearLR{.iterations = 9});
  optim::WeightAverage average(table->named_parameters(), {.decay = 0.5});
  average.update();
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    const Tensor loss = square(table(in[0])).mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    average.update();
    scheduler.step();
    return std::vector{loss};
  };
  StepGraph graph(step);
  const auto call = [&](std::int64_t index) {
    const Tensor batch = full({2}, static_cast<double>(index), {.dtype = DType::i64});
    return capture ? graph({batch}) : step(std::array{batch});
  };
  for (int i = 0; i < 8; ++i) {
    if (i == 6) {
      EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
      EXPECT_THROW(call(7), InvalidArgument);
    }
    call(i % 5);
  }
  std::vector<double> outcome = Tensor(table->weight).to_vector<double>();
  outcome.insert(outcome.end(), {static_cast<double>(scheduler.steps()), optimizer.lr(),
                                 static_cast<double>(average.updates())});
  return outcome;
}

TEST(StepGraph, LeavesScheduleAndAverageWhereAReplayThrowsBeforeThem) {
  EXPECT_EQ(train_past_a_bad_batch(true), train_past_a_bad_batch(false));
}

TEST(StepGraph, RefusesAStepThatIsMissingAndNoWarmUp) {
  EXPECT_THROW(StepGraph(nullptr), InvalidArgument);
  const auto step = [](std::span<const Tensor>) { return std::vector<Tensor>(); };
  const auto message =
      message_of<InvalidArgument>([&] { StepGraph(step, {.num_warmup_iters = 0}); });
  EXPECT_NE(message.find("num_warmup_iters is 0"), std::string::npos) << message;
}

TEST(StepGraph, PassesOnWhatTheStepThrows) {
  StepGraph graph([](std::span<const Tensor>) -> std::vector<Tensor> {
    LOCKSTEP_THROW(InvalidArgument, "the step's own");
  });
  EXPECT_EQ(message_of<InvalidArgument>([&] { graph({}); }), "the step's own");
}

}  // namespace
}  // namespace lockstep::parallel::testing
