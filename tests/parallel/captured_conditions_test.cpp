#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/backend/info.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/ranks.hpp"

// What others may rely on where a step is replayed, and what makes it be captured anew.

namespace lockstep::parallel::testing {
namespace {

using In = std::span<const Tensor>;
using ::testing::HasSubstr;

/// Calls a step until it is replayed.
void warm_up(StepGraph& graph, const Tensor& x) {
  for (int i = 0; i < 5; ++i) graph({x});
  ASSERT_TRUE(graph.replayed()) << graph.fallback_reason();
}

TEST(StepGraph, TellsBackwardOfWhatALaunchWritesTo) {
  const Tensor state = zeros({4}, {DType::f64}), x = values({4}, 1);
  StepGraph graph([&](In in) {
    Tensor(state).add_(in[0]);
    return std::vector<Tensor>{};
  });
  warm_up(graph, x);
  Tensor weight = values({4}, 2).set_requires_grad();
  const Tensor loss = (weight * state).sum();
  graph({x});
  EXPECT_TRUE(graph.replayed());
  EXPECT_THROW(loss.backward(), InvalidArgument);
}

TEST(StepGraph, TellsBackwardThatItsResultsWereOverwritten) {
  const Tensor x = values({4}, 1);
  StepGraph graph([](In in) { return std::vector{in[0] * 2.0}; });
  warm_up(graph, x);
  Tensor weight = values({4}, 2).set_requires_grad();
  const Tensor loss = (weight * graph({x})[0]).sum();
  graph({x});
  EXPECT_THROW(loss.backward(), InvalidArgument);
}

TEST(StepGraph, LetsAnOuterAutocastConvertAnewWhatALaunchChanged) {
  const auto train = [](bool capture) {
    Tensor weight = values({4, 4}, 2).to(DType::f32).set_requires_grad();
    const Tensor x = values({2, 4}, 1).to(DType::f32);
    const StepGraph::Step step = [&](In) {
      const NoGradGuard no_recording;
      weight.mul_(1.5);
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.num_warmup_iters = 1});
    std::vector<double> all;
    const amp::Autocast mixed(DType::bf16);
    for (int i = 0; i < 5; ++i) {
      capture ? graph({x}) : step(std::array{x});
      for (const double value : matmul(x, weight).to_vector<double>()) all.push_back(value);
    }
    EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
    return all;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(StepGraph, IsCapturedAnewWhereATensorThatItWritesToIsGone) {
  Tensor sum = zeros({4}, {DType::f64});
  StepGraph graph([&](In in) {
    sum.add_(in[0]);
    return std::vector<Tensor>{};
  });
  const Tensor x = values({4}, 1);
  warm_up(graph, x);
  sum = zeros({4}, {DType::f64});
  graph({x});
  EXPECT_EQ(sum.to_vector<double>(), x.to_vector<double>());
}

TEST(StepGraph, ReplaysWhatWritesToTensorsThatGoWithTheStep) {
  Tensor before = zeros({4}, {DType::f64});
  StepGraph graph([&](In in) {
    if (before.defined()) before.add_(in[0]);
    before = {};
    Tensor none = zeros({0}, {DType::f64}), sum = zeros({4}, {DType::f64});
    none.add_(1.0);
    return std::vector{sum.add_(in[0])};
  });
  const Tensor x = values({4}, 1);
  for (int i = 0; i < 5; ++i) {
    before = i < 4 ? zeros({4}, {DType::f64}) : before;
    graph({x});
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

TEST(StepGraph, LeavesItsInputsAsTheyAreInEachCall) {
  StepGraph graph([](In in) {
    Tensor x = in[0];
    return std::vector{x.add_(1.0).clone()};
  });
  const Tensor x = values({4}, 1), before = x.clone();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(graph({x})[0].to_vector<double>(), (before + 1.0).to_vector<double>()) << i;
    EXPECT_EQ(x.to_vector<double>(), before.to_vector<double>()) << i;
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

/// What a step makes of inputs, with a state of its own that it is to replace. @return results, and
/// why it runs eagerly at last.
std::pair<std::vector<double>, std::string> run_with_state(
    bool capture, const std::function<Tensor(const Tensor&)>& function) {
  const StepGraph::Step step = [&](In in) { return std::vector{function(in[0])}; };
  StepGraph graph(step);
  std::vector<double> all;
  for (int i = 0; i < 7; ++i) {
    const Tensor x = values({4}, i);
    all.push_back((capture ? graph({x}) : step(std::array{x}))[0].sum().item());
  }
  return {all, graph.fallback_reason()};
}

TEST(StepGraph, RunsEagerlyWhatReplacesATensorThatItReads) {
  const std::vector<std::function<Tensor(Tensor&, const Tensor&)>> updates{
      [](Tensor& state, const Tensor& x) { return state = state * 0.5 + x; },
      [](Tensor& state, const Tensor& x) {  // by way of a view
        return state = cat({state.slice(0, 1, 4), x.slice(0, 0, 1)}, 0);
      },
      [](Tensor& state, const Tensor& x) {  // only as an operand of what is written in place
        const Tensor y = x.clone().add_(state);
        state = x.clone();
        return y;
      },
      [](Tensor& state, const Tensor& x) { return std::exchange(state, x.clone()); }};
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const auto run = [&](bool capture) {
      Tensor state = values({4}, 11);
      return run_with_state(capture, [&](const Tensor& x) { return updates[i](state, x); });
    };
    const auto [results, reason] = run(true);
    EXPECT_EQ(results, run(false).first) << i;
    EXPECT_THAT(reason, HasSubstr("input and a result")) << i;
  }
}

TEST(StepGraph, ReplaysWhatKeepsTensorsThatItDoesNotRead) {
  const auto run = [](bool capture) {
    Tensor last, mean = zeros({}, {DType::f64}), mask;
    return run_with_state(capture, [&](const Tensor& x) {
      if (!mask.defined()) mask = ones({4}, {DType::f64});
      mean.mul_(0.5).add_(x.mean());
      last = x * mask + mean;
      return last.square();
    });
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(StepGraph, FollowsAnotherChoiceOfTheBackend) {
  const auto backends = backend::cpu_backends();
  const std::string first(backends.front()), last(backends.back());
  std::vector<int> calls(2);  // of the function, under each
  const std::string* current = &first;
  StepGraph graph([&](In in) {
    ++calls[current == &last];
    return std::vector{matmul(in[0], in[0])};
  });
  const Tensor x = values({8, 8}, 1);
  const auto use = [&](const std::string& name) {
    backend::use_cpu_backend(name);
    current = &name;
    for (int i = 0; i < 5; ++i) graph({x});
    EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  };
  use(first);
  use(last);
  const std::vector<int> captured_each = calls;
  use(first);  // its graph is there still
  EXPECT_EQ(calls, captured_each);
  EXPECT_EQ(calls[1] > 0, first != last);
}

TEST(StepGraph, KeepsNoPlaceForShapesOfWhichEachCallThrew) {
  StepGraph graph(
      [](In in) {
        LOCKSTEP_CHECK(in[0].numel() == 4, InvalidArgument, "not these");
        return std::vector{in[0] * 2.0};
      },
      {.num_warmup_iters = 2, .max_shapes = 1});
  for (int n = 1; n < 4; ++n) EXPECT_THROW(graph({values({n}, 1)}), InvalidArgument);
  const Tensor x = values({4}, 1);
  for (int i = 0; i < 4; ++i) {
    graph({x});
    EXPECT_EQ(graph.replayed(), i >= 2) << i << graph.fallback_reason();
  }
}

TEST(StepGraph, WarnsOnceOfEachReasonToRunEagerly) {
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  StepGraph graph([](In in) { return std::vector{in[0] * 2.0}; }, {.max_shapes = 1});
  const Tensor x = values({4}, 1), y = values({3}, 1);
  Tensor learned = values({4}, 1).set_requires_grad();
  for (int i = 0; i < 6; ++i) {
    graph({x});
    graph({y});
    graph({learned});
  }
  set_log_sink(nullptr);
  EXPECT_THAT(lines, ::testing::UnorderedElementsAre(HasSubstr("raise max_shapes"),
                                                     HasSubstr("requires a gradient")));
}

TEST(StepGraph, SaysWhichInputIsUndefined) {
  StepGraph graph([](In in) { return std::vector{in[0] * in[1]}; });
  const Tensor x = values({4}, 1);
  EXPECT_THAT(message_of<InvalidArgument>([&] { graph({x, Tensor()}); }), HasSubstr("input 1"));
}

TEST(StepGraph, MayRunEagerlyWithAnUndefinedInput) {
  StepGraph graph([](In in) { return std::vector{in[1].defined() ? in[1] : in[0]}; });
  const Tensor x = values({4}, 1);
  EXPECT_EQ(graph({x, Tensor()})[0].to_vector<double>(), x.to_vector<double>());
  EXPECT_THAT(graph.fallback_reason(), HasSubstr("input 1 is undefined"));
}

TEST(StepGraph, ReadsInputsInTheLayoutInWhichTheyAreGiven) {
  const Tensor base = values({24, 40}, 1).to(DType::f32);
  const std::vector<Tensor> inputs{
      base.transpose(0, 1), base.slice(0, 0, 1).expand({16, 40}), base.slice(1, 3, 20),
      base.reshape({4, 6, 40}).permute({2, 0, 1}), base.slice(0, 3, 4).transpose(0, 1)};
  for (const Tensor& x : inputs) {
    Strides seen;
    const StepGraph::Step step = [&](In in) {
      seen = in[0].strides();
      return std::vector{in[0].sum(), in[0] * 1.0, softmax(in[0], 0).square().sum()};
    };
    StepGraph graph(step);
    std::vector<Tensor> captured;
    for (int i = 0; i < 5; ++i) captured = graph({x});
    EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
    if (!x.is_contiguous()) {
      EXPECT_EQ(seen, x.strides());
    }
    const std::vector<Tensor> eager = step(std::array{x});
    for (std::size_t k = 0; k < eager.size(); ++k)
      EXPECT_EQ(captured[k].to_vector<double>(), eager[k].to_vector<double>()) << x.strides() << k;
  }
}

TEST(StepGraph, FollowsHooksOfGradientsThatComeAndGo) {
  const auto train = [](bool captures, bool on_leaf) {
    Tensor weight = ones({2}, {DType::f64}).set_requires_grad();
    optim::SGD optimizer({weight}, {.lr = 0.01});
    const StepGraph::Step step = [&](In in) {
      (weight * in[0]).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      return std::vector<Tensor>{};
    };
    StepGraph graph(step);
    HookHandle of_tensor;
    std::uint64_t of_leaf = 0;
    const auto add = [&](double factor) {
      if (!on_leaf)
        of_tensor = weight.register_hook([factor](const Tensor& dy) { return dy * factor; });
      else
        of_leaf = autograd::leaf_of(weight).add_hook(
            [factor](autograd::LeafNode& leaf) { leaf.gradient().mul_(factor); });
    };
    const auto remove = [&] {
      of_tensor.remove();
      if (on_leaf) autograd::leaf_of(weight).remove_hook(of_leaf);
    };
    bool replayed = false;
    for (int i = 0; i < 20; ++i) {
      if (i == 7) add(3.0);
      if (i == 14) {
        remove();
        add(5.0);
      }
      if (captures)
        graph({ones({2}, {DType::f64})});
      else
        step(std::vector{ones({2}, {DType::f64})});
      replayed = graph.replayed();
    }
    EXPECT_EQ(replayed, captures) << graph.fallback_reason();
    return weight.detach().clone();
  };
  for (const bool on_leaf : {false, true})
    EXPECT_TRUE(equal(train(true, on_leaf), train(false, on_leaf))) << on_leaf;
}

TEST(StepGraph, LeavesParametersAloneThatHoldTheirAverages) {
  Tensor weight = ones({2}, {DType::f64}).set_requires_grad();
  optim::SGD optimizer({weight}, {.lr = 0.01});
  optim::WeightAverage average({weight});
  StepGraph graph([&](In in) {
    (weight * in[0]).sum().backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector<Tensor>{};
  });
  const Tensor x = ones({2}, {DType::f64});
  warm_up(graph, x);
  average.update();
  {
    const auto averaged = average.swap_in();
    EXPECT_THROW(graph({x}), InvalidArgument);
  }
  const Tensor before = weight.detach().clone();
  graph({x});
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  EXPECT_TRUE(equal(weight.detach(), before - 0.01));
}

TEST(StepGraph, IsCapturedAnewForAParameterThatWasUnfrozen) {
  const auto train = [](bool capture) {
    std::vector<Tensor> weights;
    for (int i = 0; i < 6; ++i) {
      weights.push_back(values({3}, i).set_requires_grad());
      if (i > 0) weights.back().set_requires_grad(false);
    }
    optim::SGD optimizer(weights, {.lr = 0.1, .momentum = 0.5});
    const StepGraph::Step step = [&](In in) {
      Tensor y = in[0];
      for (const Tensor& weight : weights) y = y * weight;
      y.sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.num_warmup_iters = 1});
    int replays = 0;
    for (int i = 0; i < 6 * 60; ++i) {  // a layer after the other
      if (i % 60 == 0) weights[static_cast<std::size_t>(i / 60)].set_requires_grad();
      const Tensor x = values({3}, i);
      capture ? graph({x}) : step(std::array{x});
      replays += graph.replayed();
    }
    if (capture) {
      EXPECT_GT(replays, 6 * 55) << graph.fallback_reason();
    }
    std::vector<double> all;
    for (const Tensor& weight : weights)
      for (const double value : weight.to_vector<double>()) all.push_back(value);
    return all;
  };
  EXPECT_EQ(train(true), train(false));
}

// States that options there and back have dropped are others' memory.
TEST(StepGraph, IsCapturedAnewWhereOptionsCameBackThatHadDroppedStates) {
  const auto train = [](bool capture) {
    Tensor weight = values({3}, 1).set_requires_grad();
    const optim::SGDOptions heavy{.lr = 0.1, .momentum = 0.9};
    optim::SGD optimizer({weight}, heavy);
    const StepGraph::Step step = [&](In in) {
      (in[0] * weight).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.num_warmup_iters = 1});
    for (int i = 0; i < 12; ++i) {
      if (i == 6) {
        optimizer.set_options({.lr = 0.1});
        optimizer.set_options(heavy);
      }
      const Tensor x = values({3}, i);
      capture ? graph({x}) : step(std::array{x});
    }
    EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
    return weight.to_vector<double>();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(StepGraph, IsCapturedAnewForAGroupThatWasAdded) {
  const auto train = [](bool capture) {
    const Tensor first = values({3}, 1).set_requires_grad();
    const Tensor second = values({3}, 2).set_requires_grad();
    optim::AdamW optimizer({{{first}, {.lr = 0.1}}});
    const StepGraph::Step step = [&](In in) {
      (in[0] * first * second).sum().backward();
      optimizer.step();
      Tensor(first).set_grad({});
      Tensor(second).set_grad({});
      return std::vector<Tensor>{};
    };
    StepGraph graph(step, {.num_warmup_iters = 1});
    for (int i = 0; i < 20; ++i) {
      if (i == 10) {
        EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
        optimizer.add_param_group({{second}, {.lr = 0.01}});
      }
      const Tensor x = values({3}, i);
      capture ? graph({x}) : step(std::array{x});
    }
    EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
    std::vector<double> all = first.to_vector<double>();
    for (const double value : second.to_vector<double>()) all.push_back(value);
    return all;
  };
  EXPECT_EQ(train(true), train(false));
}

}  // namespace
}  // namespace lockstep::parallel::testing
