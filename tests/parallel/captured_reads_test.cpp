#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/autograd/grad.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/ranks.hpp"

// What a captured step reads that it did not make: a launch finds it, or there is none.

namespace lockstep::parallel::testing {
namespace {

using In = std::span<const Tensor>;
using ::testing::HasSubstr;

struct Reads {
  std::vector<double> numbers;
  int replays = 0;
  std::string reason;
};

// Calls what `make` makes, eagerly or captured, with eight batches of `rows(call)` rows.
Reads call_steps(bool capture, const std::function<StepGraph::Step()>& make,
                 const std::function<int(int)>& rows, int calls, bool holds_results = false) {
  const StepGraph::Step step = make();
  StepGraph graph(step);
  Reads reads;
  std::vector<Tensor> held;
  for (int i = 0; i < calls; ++i) {
    const Tensor x = values({rows(i), 4}, i);
    std::vector<Tensor> results = capture ? graph({x}) : step(std::array{x});
    for (const Tensor& result : results)
      for (const double value : result.to_vector<double>()) reads.numbers.push_back(value);
    if (holds_results) held = std::move(results);
    reads.replays += graph.replayed();
  }
  reads.reason = graph.fallback_reason();
  return reads;
}

int two_rows(int) { return 2; }

void expect_refused(const char* what, const std::function<StepGraph::Step()>& make,
                    bool holds_results = false) {
  const Reads eager = call_steps(false, make, two_rows, 9, holds_results);
  const Reads captured = call_steps(true, make, two_rows, 9, holds_results);
  EXPECT_EQ(captured.numbers, eager.numbers) << what;
  EXPECT_EQ(captured.replays, 0) << what;
  EXPECT_THAT(captured.reason, HasSubstr("is gone when the step returns")) << what;
}

Tensor weight_of(const Shape& shape) { return values(shape, 2).set_requires_grad(); }

TEST(CapturedReads, OfAGradientOfTheCallBeforeAreRefused) {
  for (const bool at_the_end : {true, false})
    expect_refused("optimistic gradient descent", [at_the_end] {
      return [w = weight_of({4}), previous = Tensor(), at_the_end](In in) mutable {
        if (!at_the_end) w.set_grad({});
        const Tensor loss = (matmul(in[0], w.reshape({4, 1})) - 1.0).square().mean();
        loss.backward();
        const NoGradGuard no_recording;
        const Tensor gradient = w.grad();
        w.sub_((previous.defined() ? gradient * 2.0 - previous : gradient) * 0.05);
        previous = gradient;
        if (at_the_end) w.set_grad({});
        return std::vector{loss, w.detach().clone()};
      };
    });
  expect_refused("autograd::grad", [] {
    return [w = weight_of({4}), previous = Tensor()](In in) mutable {
      const Tensor loss = (matmul(in[0], w.reshape({4, 1})) - 1.0).square().mean();
      const std::vector<Tensor> gradients = autograd::grad({loss}, {w});
      const NoGradGuard no_recording;
      w.sub_((previous.defined() ? gradients[0] * 2.0 - previous : gradients[0]) * 0.05);
      previous = gradients[0];
      return std::vector{loss, w.detach().clone()};
    };
  });
}

TEST(CapturedReads, OfValuesThatAreOnlyLookedAtAreLeftToTheEagerCalls) {
  const auto make = [] {
    return StepGraph::Step([w = weight_of({4, 3})](In in) mutable {
      w.set_grad({});
      const Tensor logits = matmul(in[0], w), classes = argmax(in[0].slice(1, 0, 3), 1);
      const Tensor chances = softmax(logits.detach(), 1);
      const Tensor loss = nll_loss(log_softmax(logits, 1), classes) +
                          gaussian_nll_loss(logits, one_hot(classes, 3).to(DType::f64), chances);
      loss.backward();
      const NoGradGuard no_recording;
      w.sub_(w.grad() * 0.05);
      return std::vector{loss, w.detach().clone(), bernoulli(chances),
                         multinomial(chances, 1).to(DType::f64)};
    });
  };
  manual_seed(4);
  const Reads eager = call_steps(
      false, make, [](int) { return 5; }, 8);
  manual_seed(4);
  const Reads captured = call_steps(
      true, make, [](int) { return 5; }, 8);
  EXPECT_GT(captured.replays, 0) << captured.reason;
  EXPECT_EQ(captured.numbers, eager.numbers);
}

TEST(CapturedReads, OfASeedOrAGradientThatIsSetAreRefused) {
  expect_refused("the seed of a backward", [] {
    return [w = weight_of({4}), state = values({2, 4}, 3)](In in) mutable {
      w.set_grad({});
      const Tensor y = in[0] * w;
      y.backward(state);
      state = y.detach() * 0.5;
      return std::vector{w.grad().clone()};
    };
  });
  expect_refused("a gradient that is set", [] {
    auto optimizer =
        std::make_shared<optim::SGD>(std::vector{weight_of({2, 4})}, optim::SGDOptions{.lr = 0.1});
    return [optimizer, state = values({2, 4}, 3)](In in) mutable {
      Tensor w = optimizer->parameters()[0];
      w.set_grad(state);
      optimizer->step();
      optimizer->zero_grad();
      state = in[0] * 0.5;
      return std::vector{w.detach().clone()};
    };
  });
}

// Of a leaf that the step makes itself, as optimizers by hand do.
TEST(CapturedReads, OfAGradientThatIsSetForALeafOfTheStepAreRefused) {
  expect_refused("a gradient of a temporary", [] {
    return [state = values({2, 4}, 3)](In in) mutable {
      Tensor w = values({2, 4}, 2).set_requires_grad();
      w.set_grad(state);
      optim::clip_grad_norm_({w}, 100.0);
      const Tensor y = w.grad().clone();
      state = in[0] * 0.5;
      return std::vector{y};
    };
  });
}

// The graph of the loss goes with the step that is behind by one.
TEST(CapturedReads, OfWhatAnEarlierForwardHasSavedAreRefused) {
  const auto make = [] {
    return [w = weight_of({4}), late = Tensor()](In in) mutable {
      w.set_grad({});
      if (!late.defined()) late = (in[0] * w).square().sum();
      late.backward();
      late = (in[0] * w).square().sum();
      return std::vector{w.grad().clone()};
    };
  };
  const Reads captured = call_steps(true, make, two_rows, 9);
  EXPECT_EQ(captured.numbers, call_steps(false, make, two_rows, 9).numbers);
  EXPECT_EQ(captured.replays, 0);
}

TEST(CapturedReads, OfCollectivesAreRefused) {
  comm::run_ranks(2, [](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const std::vector<std::function<Tensor(const Tensor&)>> kinds = {
        [&](const Tensor& x) { return all_gather_async(x, *group).wait().sum(); },
        [&](const Tensor& x) {
          return reduce_scatter_async(x, *group, comm::ReduceOp::sum()).wait().sum();
        },
        [&](const Tensor& x) {
          return all_reduce_async(x, *group, comm::ReduceOp::sum()).wait().sum();
        },
    };
    for (const auto& kind : kinds)
      expect_refused("a collective", [&kind] {
        return [&kind, state = values({2, 4}, 3)](In in) mutable {
          const Tensor sum = kind(state);
          state = in[0] * 0.5;
          return std::vector{sum};
        };
      });
  });
}

TEST(CapturedReads, OfAStateThatTheLastResultsHoldAreRefused) {
  const auto make = [] {
    return [state = values({2, 4}, 3)](In in) mutable {
      state = state * 0.5 + in[0];
      return std::vector{state};
    };
  };
  expect_refused("results that the program holds", make, true);
}

// It is replaced in each third call: each is right, whether the graph was made in one or not.
TEST(CapturedReads, OfAStateThatGoesNowAndThenAreNotOfFreedMemory) {
  const auto make = [] {
    return [states = std::vector<Tensor>(6, values({2, 4}, 3))](In in) mutable {
      const Tensor y = states.front() * 0.5 + in[0];
      states.erase(states.begin());
      states.push_back(values({2, 4}, static_cast<int>(states.size())));
      return std::vector{y};
    };
  };
  const Reads captured = call_steps(true, make, two_rows, 4);
  EXPECT_EQ(captured.numbers, call_steps(false, make, two_rows, 4).numbers);
}

// The graph keeps what it reads, and serves no longer.
TEST(CapturedReads, EndTheLaunchesWhereWhatTheyReadIsGone) {
  Tensor table = values({4}, 3);
  StepGraph graph([&](In in) { return std::vector{in[0] * table}; });
  const Tensor x = values({2, 4}, 1);
  for (int i = 0; i < 5; ++i) graph({x});
  ASSERT_TRUE(graph.replayed()) << graph.fallback_reason();
  table = values({4}, 5);
  EXPECT_EQ(graph({x})[0].to_vector<double>(), (x * table).to_vector<double>());
  EXPECT_FALSE(graph.replayed());
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(graph({x})[0].to_vector<double>(), (x * table).to_vector<double>());
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

// Whoever keeps it beside the program does so for launches: another graph, or the graph's results.
TEST(CapturedReads, EndTheLaunchesOfAllWhoHaveReadWhatIsGone) {
  Tensor table = values({4}, 3);
  const StepGraph::Step product = [&](In in) { return std::vector{in[0] * table, table}; };
  StepGraph graph(product), other(product);
  const Tensor x = values({2, 4}, 1), y = values({3, 4}, 2);
  std::vector<Tensor> held;
  for (int round = 0; round < 3; ++round) {
    table = values({4}, 4 + round);
    for (int i = 0; i < 4; ++i)
      for (const auto& [each, batch] : {std::pair(&graph, x), {&graph, y}, {&other, x}}) {
        held = (*each)({batch});
        EXPECT_EQ(held[0].to_vector<double>(), (batch * table).to_vector<double>());
        EXPECT_EQ(held[1].to_vector<double>(), table.to_vector<double>());
        if (i == 3) {
          EXPECT_TRUE(each->replayed()) << each->fallback_reason();
        }
      }
  }
}

TEST(CapturedReads, EndTheLaunchesWhereWhatTheyReadAndWriteIsGone) {
  Tensor state = values({2, 4}, 3);
  StepGraph graph([&](In in) {
    state.add_(in[0]);
    return std::vector{state * 2.0, state};
  });
  const Tensor x = values({2, 4}, 1);
  Tensor expected = state.clone();
  for (int i = 0; i < 12; ++i) {
    if (i == 6) {
      EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
      state = values({2, 4}, 5);
      expected = state.clone();
    }
    expected.add_(x);
    const std::vector<Tensor> results = graph({x});
    EXPECT_EQ(results[0].to_vector<double>(), (expected * 2.0).to_vector<double>());
    EXPECT_EQ(results[1].to_vector<double>(), expected.to_vector<double>());
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

// It is the first graph's, which has another result for each shape.
TEST(CapturedReads, EndTheLaunchesWhereAnotherGraphsResultIsReplaced) {
  Tensor sum;
  StepGraph first([](In in) { return std::vector{in[0].sum(0)}; });
  StepGraph second([&](In in) { return std::vector{in[0] * sum}; });
  const Tensor scale = values({4}, 1);
  for (int i = 0; i < 24; ++i) {
    const Tensor x = values({i / 8 == 1 ? 3 : 2, 4}, i);
    sum = first({x})[0];
    EXPECT_EQ(second({scale})[0].to_vector<double>(), (scale * x.sum(0)).to_vector<double>());
  }
}

void expect_replays_of_two_shapes(const char* what, const std::function<StepGraph::Step()>& make) {
  const auto rows = [](int call) { return call < 6 || call % 2 == 0 ? 4 : 5; };
  const Reads eager = call_steps(false, make, rows, 24),
              captured = call_steps(true, make, rows, 24);
  EXPECT_EQ(captured.numbers, eager.numbers) << what;
  EXPECT_GE(captured.replays, 12) << what << captured.reason;
}

// What the first calls of a further shape make and keep lies in no memory that a graph writes to.
TEST(CapturedReads, OfWhatALaterShapeHasMadeAreNotOverwritten) {
  expect_replays_of_two_shapes("a head and a state each", [] {
    const std::vector<Tensor> heads = {weight_of({4, 4}), weight_of({4, 4})};
    auto optimizer = std::make_shared<optim::AdamW>(heads, optim::AdamWOptions{.lr = 0.02});
    return [optimizer, heads](In in) {
      const Tensor loss = (matmul(in[0], heads[in[0].size(0) == 4 ? 0 : 1]) - 0.3).square().mean();
      loss.backward();
      optimizer->step();
      optimizer->zero_grad();
      return std::vector{loss};
    };
  });
  expect_replays_of_two_shapes("a table each", [] {
    auto optimizer =
        std::make_shared<optim::SGD>(std::vector{weight_of({4, 4})}, optim::SGDOptions{.lr = 0.1});
    return [optimizer, tables = std::map<std::int64_t, Tensor>()](In in) mutable {
      Tensor& table = tables[in[0].size(0)];
      if (!table.defined()) table = full({4, 4}, 0.25, in[0].options());
      const Tensor loss = (matmul(in[0], optimizer->parameters()[0] + table) - 0.3).square().mean();
      loss.backward();
      optimizer->step();
      optimizer->zero_grad();
      return std::vector{loss};
    };
  });
  expect_replays_of_two_shapes("the counts of a scaler", [] {
    auto optimizer =
        std::make_shared<optim::SGD>(std::vector{weight_of({4, 4})}, optim::SGDOptions{.lr = 0.1});
    auto scaler = std::make_shared<amp::GradScaler>(amp::GradScalerOptions{.init_scale = 16});
    return [optimizer, scaler](In in) {
      const Tensor loss = (matmul(in[0], optimizer->parameters()[0]) - 0.3).square().mean();
      scaler->scale(loss).backward();
      scaler->clip_and_step(*optimizer, 1.0);
      scaler->update();
      optimizer->zero_grad();
      return std::vector{loss};
    };
  });
}

// For whoever uses them outside, whatever an evaluation overwrites in between.
TEST(CapturedReads, OfAnotherShapeDoNotOverwriteGradientsThatACallHasLeft) {
  for (const int temporaries : {1, 8}) {
    Tensor w = ones({1024}).set_requires_grad();
    StepGraph graph([&](In in) {
      if (in[0].dim() == 1) {
        const NoGradGuard no_recording;
        std::vector<Tensor> all;
        for (int k = 0; k < temporaries; ++k) all.push_back(in[0] + k);
        Tensor sum = w.detach();
        for (const Tensor& each : all) sum = sum + each;
        return std::vector{sum.sum()};
      }
      w.set_grad({});
      const Tensor loss = (in[0] * w).sum();
      loss.backward();
      return std::vector{loss};
    });
    const Tensor evaluated = full({1024}, 6.0), x = ones({2, 1024});
    for (int i = 0; i < 5; ++i) graph({evaluated});
    ASSERT_TRUE(graph.replayed()) << graph.fallback_reason();
    for (int i = 0; i < 8; ++i) {
      graph({x});
      EXPECT_EQ(graph.replayed(), i > 0) << graph.fallback_reason();
      graph({evaluated});
      EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(1024, 2.0F)) << i;
    }
    EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  }
}

// One scaler of two optimizers, each in a step of its own.
TEST(CapturedReads, OfWhatAScalerFoundInAnotherGraphAreOfItsLaunches) {
  const auto train = [](bool capture) {
    Tensor first = weight_of({4, 4}), second = weight_of({4, 4});
    optim::SGD a({first}, {.lr = 0.05}), b({second}, {.lr = 0.05});
    amp::GradScaler scaler({.init_scale = 8, .growth_interval = 3});
    const auto take = [&](In in, const Tensor& w, optim::Optimizer& optimizer) {
      const Tensor loss = (matmul(in[0], w) - 0.3).square().mean();
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      optimizer.zero_grad();
      return std::vector{loss};
    };
    const StepGraph::Step one = [&](In in) { return take(in, first, a); };
    const StepGraph::Step two = [&](In in) {
      auto results = take(in, second, b);
      scaler.update();
      return results;
    };
    StepGraph graph(one), other(two);
    std::vector<double> all;
    for (int i = 0; i < 14; ++i) {
      const Tensor x = values({4, 4}, i), y = x * (i == 8 ? 1e308 : 1.0);
      all.push_back((capture ? graph({y}) : one(std::array{y}))[0].item());
      all.push_back((capture ? other({x}) : two(std::array{x}))[0].item());
      all.push_back(scaler.get_scale());
    }
    EXPECT_EQ(graph.replayed() && other.replayed(), capture)
        << graph.fallback_reason() << other.fallback_reason();
    for (const Tensor& w : {first, second}) all.push_back(w.detach().sum().item());
    return all;
  };
  const std::vector<double> eager = train(false);
  EXPECT_EQ(train(true), eager);
}

// Gradients stay where they are, and so do those that are infinite.
TEST(CapturedReads, OfWhatAScalerFoundOutsideAreRefused) {
  const auto train = [](bool capture) {
    Tensor w = weight_of({4, 4});
    optim::AdamW optimizer({w}, {.lr = 0.05});
    amp::GradScaler scaler({.init_scale = 8, .growth_interval = 3});
    const StepGraph::Step step = [&](In) {
      scaler.step(optimizer);
      scaler.update();
      optimizer.zero_grad(false);
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.device = cpu});
    std::vector<double> all;
    for (int i = 0; i < 14; ++i) {
      const Tensor x = values({4, 4}, i) * (i == 8 ? 1e308 : 1.0);
      scaler.scale((matmul(x, w) - 0.3).square().mean()).backward();
      scaler.unscale_(optimizer);
      const std::vector<Tensor> none;
      capture ? graph(none) : step(none);
      all.push_back(scaler.get_scale());
      all.push_back(w.detach().sum().item());
    }
    EXPECT_FALSE(graph.replayed());
    if (capture) {
      EXPECT_THAT(graph.fallback_reason(), HasSubstr("unscale_"));
    }
    return all;
  };
  EXPECT_EQ(train(true), train(false));
}

}  // namespace
}  // namespace lockstep::parallel::testing
