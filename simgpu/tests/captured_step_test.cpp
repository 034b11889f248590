#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "simgpu/simgpu.hpp"

// A step of training as one launch.

namespace simgpu {
namespace {

using namespace lockstep;

constexpr Device device = cuda(0);
const TensorOptions f32{.dtype = DType::f32, .device = device};

std::vector<double> numbers(const Tensor& x) { return x.to_vector<double>(); }

/// A small GPT, trained in bf16.
struct Bf16Training {
  nn::ModulePtr<models::Gpt2> model = models::gpt2(
      {.layers = 2, .heads = 2, .channels = 32, .context = 16, .vocabulary = 64, .dropout = 0.1});
  optim::AdamW optimizer;
  optim::LRScheduler scheduler;

  Bf16Training()
      : optimizer((model->to(device), model->named_parameters())),
        scheduler(optimizer, optim::LinearLR{.iterations = 100}) {}

  std::vector<Tensor> step(std::span<const Tensor> in) {
    const amp::Autocast mixed(DType::bf16);
    const Tensor logits = model->forward(in[0]);
    const Tensor loss = cross_entropy(logits.reshape({-1, 64}), in[1].reshape({-1}));
    loss.backward();
    optim::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    return {loss};
  }
};

Tensor tokens(std::int64_t rows, int seed) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows) * 16);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = (i * i + i * seed + seed) % 64;
  return from_span<std::int64_t>(ids, {rows, 16}, device);
}

class SimCapturedStep : public ::testing::Test {
 protected:
  ~SimCapturedStep() override {
    synchronize(current_stream(device));
    EXPECT_EQ(findings(), found_before_);
  }
  const std::size_t found_before_ = findings();
};

TEST_F(SimCapturedStep, IsOneGraphLaunchAndNoWait) {
  manual_seed(1);
  Bf16Training training;
  StepGraph graph([&](std::span<const Tensor> in) { return training.step(in); });
  const Tensor x = tokens(2, 1), y = tokens(2, 2);
  for (int i = 0; i < 4; ++i) {
    graph({x, y});
    training.scheduler.step();
  }
  ASSERT_TRUE(graph.replayed()) << graph.fallback_reason();
  const HostWaits waits;
  const std::size_t before = launches(), graphs_before = graph_launches();
  for (int i = 0; i < 3; ++i) {
    graph({x, y});
    training.scheduler.step();
  }
  EXPECT_EQ(waits.count(), 0u) << waits.describe();
  EXPECT_EQ(graph_launches() - graphs_before, 3u);
  // Two inputs are copied; the place of the draws and the learning rate are written.
  EXPECT_EQ(launches() - before, 3u * 4u);
}

TEST_F(SimCapturedStep, KeepsAGraphForEachShapeUpToABound) {
  const Tensor weight = ones({4}, f32);
  StepGraph graph([&](std::span<const Tensor> in) { return std::vector{in[0] * weight}; },
                  {.num_warmup_iters = 1, .max_shapes = 2});
  for (int round = 0; round < 3; ++round)
    for (std::int64_t rows = 1; rows <= 3; ++rows) {
      const Tensor x = full({rows, 4}, static_cast<double>(10 * round + rows), f32);
      EXPECT_EQ(numbers(graph({x})[0]), numbers(x));
      EXPECT_EQ(graph.replayed(), round > 0 && rows <= 2);
      if (rows == 3) {
        EXPECT_NE(graph.fallback_reason().find("max_shapes"), std::string::npos);
      }
    }
}

TEST_F(SimCapturedStep, KeepsThePrioritiesOfStreams) {
  const Stream urgent(device, StreamPriority::high);
  const auto order = [](StreamRef earlier, StreamRef later) {
    Event mark(device);
    mark.record(earlier);
    mark.wait(later);
  };
  const std::size_t before = graphs_without_priorities();
  StepGraph graph([&](std::span<const Tensor> in) {
    const Tensor y = in[0] * 2.0;
    order(current_stream(device), urgent);
    {
      const StreamGuard guard(urgent);
      Tensor(y).add_(in[0]);
    }
    order(urgent, current_stream(device));
    return std::vector{y};
  });
  const Tensor x = ones({64}, f32);
  for (int i = 0; i < 5; ++i) graph({x});
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  EXPECT_EQ(graphs_without_priorities(), before);
}

TEST_F(SimCapturedStep, IsTriedAgainWhereTheDriverRefusedItsGraph) {
  const Tensor x = ones({4}, f32);
  const auto graph_after = [&](const char* faults) {
    auto graph = std::make_unique<StepGraph>(
        [](std::span<const Tensor> in) { return std::vector{in[0] * 2.0}; });
    inject(faults);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(numbers((*graph)({x})[0])[0], 2.0);
    clear_faults();
    return graph;
  };
  const auto once = graph_after("cudaGraphInstantiate:1:2");
  EXPECT_TRUE(once->replayed()) << once->fallback_reason();
  const auto always = graph_after(
      "cudaGraphInstantiate:1:2;cudaGraphInstantiate:2:2;cudaGraphInstantiate:3:2;"
      "cudaGraphInstantiate:4:2");
  EXPECT_FALSE(always->replayed());
  EXPECT_NE(always->fallback_reason().find("cudaGraphInstantiate"), std::string::npos);
}

TEST_F(SimCapturedStep, MayReturnMuch) {
  StepGraph graph([](std::span<const Tensor> in) { return std::vector{in[0] * 2.0}; });
  const Tensor x = ones({1 << 18}, f32);
  for (int i = 0; i < 5; ++i) graph({x});
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

TEST_F(SimCapturedStep, GivesBackMemoryWhenItIsReset) {
  StepGraph graph([](std::span<const Tensor> in) { return std::vector{in[0] * 2.0}; });
  const Tensor x = ones({1 << 18}, f32);
  const auto free_after = [&](int resets) {
    for (int i = 0; i < resets; ++i) {
      for (int k = 0; k < 3; ++k) graph({x});
      graph.reset();
    }
    return device_runtime(DeviceType::cuda).memory_info(0).first;
  };
  const std::size_t few = free_after(2);  // the first calls only warm up
  EXPECT_EQ(free_after(3), few);
}

// Whoever ends it need not know on which stream it was launched.
TEST_F(SimCapturedStep, WaitsForItsLaunchesOnOtherStreams) {
  const Tensor x = ones({1 << 16}, f32);
  const Stream side(device);
  synchronize(current_stream(device));
  std::optional<StepGraph> graph;
  graph.emplace([](std::span<const Tensor> in) { return std::vector{in[0].sum() * 2.0}; });
  {
    const StreamGuard guard(side);
    for (int i = 0; i < 6; ++i) (*graph)({x});
  }
  EXPECT_TRUE(graph->replayed()) << graph->fallback_reason();
  graph.reset();
  full({1 << 16}, 3.0, f32);  // may get its memory
  side.synchronize();
}

TEST_F(SimCapturedStep, RunsEagerlyAndSaysWhy) {
  const auto reason_of = [](const StepGraph::Step& step) {
    StepGraph graph(step, {.num_warmup_iters = 1});
    const Tensor x = ones({4}, f32);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers(graph({x})[0]), numbers(x));
    EXPECT_FALSE(graph.replayed());
    return graph.fallback_reason();
  };
  using In = std::span<const Tensor>;
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(reason_of([](In in) {
        in[0].sum().item();
        return std::vector{in[0]};
      }),
      "read on the host");
  has(reason_of([](In in) {
        const HostCopy copy(in[0]);
        return std::vector{in[0]};
      }),
      "HostCopy");
  has(reason_of([](In in) { return std::vector{in[0] * tensor({1.0F}, device)}; }),
      "made of values of the host");
  has(reason_of([](In in) {
        synchronize(current_stream(device));
        return std::vector{in[0]};
      }),
      "the host waits");
  has(reason_of([](In in) {
        Generator own(1);
        rand({2}, f32, own);
        return std::vector{in[0]};
      }),
      "default_generator()");
  EXPECT_THROW(reason_of([](In) -> std::vector<Tensor> { LOCKSTEP_THROW(Error, "the user's"); }),
               Error);
}

TEST_F(SimCapturedStep, FollowsGradientsThatOthersLeft) {
  // Without zero_grad a replay would overwrite what an eager step adds to.
  Tensor weight = ones({4}, f32);
  weight.set_requires_grad();
  StepGraph graph(
      [&](std::span<const Tensor> in) {
        (in[0] * weight).sum().backward();
        return std::vector{in[0]};
      },
      {.num_warmup_iters = 1});
  const Tensor x = ones({4}, f32);
  for (int i = 1; i <= 8; ++i) {
    graph({x});
    EXPECT_EQ(numbers(weight.grad())[0], i);
  }
  weight.set_grad({});
  graph({x});
  EXPECT_EQ(numbers(weight.grad())[0], 1);
}

TEST_F(SimCapturedStep, SeesParametersThatWereWrittenOrOptionsThatChanged) {
  const auto train = [](bool capture) {
    Tensor weight = full({4}, 2.0, {.dtype = DType::bf16, .device = device});
    weight.set_requires_grad();
    optim::SGD optimizer(std::vector{weight}, {.lr = 0.25, .momentum = 0.5});
    const StepGraph::Step step = [&](std::span<const Tensor> in) {
      const Tensor loss = (in[0] * weight * weight).sum();
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      return std::vector{loss};
    };
    StepGraph graph(step, {.num_warmup_iters = 2});
    std::vector<double> all;
    const Tensor x = full({4}, 0.125, {.dtype = DType::bf16, .device = device});
    for (int i = 0; i < 10; ++i) {
      if (i == 5) no_grad([&] { weight.fill_(3.0); });
      if (i == 6) optimizer.set_lr(0.125);
      if (i == 8) optimizer.load_state_dict(optimizer.state_dict());
      const auto result = capture ? graph({x}) : step(std::vector{x});
      all.push_back(numbers(result[0])[0]);
    }
    EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
    for (const double value : numbers(weight)) all.push_back(value);
    return all;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(SimCapturedStep, LeavesItsMemoryToTheNextWhenItEnds) {
  const auto reserved_after = [](int graphs) {
    for (int i = 0; i < graphs; ++i) {
      StepGraph graph([](std::span<const Tensor> in) { return std::vector{in[0] + 1.0}; },
                      {.num_warmup_iters = 1});
      const Tensor x = ones({(1 << 18) + 1}, f32);
      for (int call = 0; call < 3; ++call) graph({x});
    }
    empty_cache(device);
    std::size_t free_bytes = 0, total = 0;
    std::tie(free_bytes, total) = device_runtime(DeviceType::cuda).memory_info(0);
    return total - free_bytes;
  };
  const std::size_t once = reserved_after(1);
  EXPECT_EQ(reserved_after(3), once);
}

/// y * 2 on a side stream, forked from the current one and joined again.
Tensor doubled_on(StreamRef side, const Tensor& y) {
  Event forked(device), joined(device);
  forked.record(current_stream(device));
  Tensor z;
  {
    const StreamGuard guard(side);
    forked.wait(side);
    z = y * 2.0;
    y.record_stream(side);
  }
  joined.record(side);
  joined.wait(current_stream(device));
  z.record_stream(current_stream(device));
  return z;
}

TEST_F(SimCapturedStep, MayUseMemoryOfASideStream) {
  const Stream side(device);
  StepGraph graph(
      [&](std::span<const Tensor> in) { return std::vector{doubled_on(side, in[0] + 1.0) + 1.0}; });
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(numbers(graph({full({4}, i, f32)})[0])[3], 2.0 * (i + 1) + 1);
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

TEST_F(SimCapturedStep, RefusesToReturnMemoryWithinIt) {
  MemoryPool& pool = memory_pool(device);
  empty({1 << 20}, f32);  // cached from here on
  const std::size_t held = pool.statistics().reserved_bytes;
  const std::function<void()> returns[] = {[&] { pool.release_cached(); }, [&] { pool.trim(0); },
                                           [&] { pool.set_limit(held); }};
  for (const auto& give_back : returns) {
    int calls = 0;
    StepGraph graph([&](std::span<const Tensor> in) {
      if (++calls == 4) give_back();  // captured
      return std::vector{in[0] + 1.0};
    });
    for (int i = 0; i < 6; ++i) EXPECT_EQ(numbers(graph({full({4}, i, f32)})[0])[3], i + 1.0);
    EXPECT_NE(graph.fallback_reason().find("a pool is trimmed or limited"), std::string::npos)
        << graph.fallback_reason();
  }
  EXPECT_GE(pool.statistics().reserved_bytes, held);
  pool.set_limit(~std::size_t{0});
}

// However fast the device was before: a capture cannot ask whether the side stream is done.
TEST_F(SimCapturedStep, FindsTheMemoryThatASideStreamHoldsUp) {
  const Stream side(device);
  StepGraph graph([&](std::span<const Tensor> in) {
    Tensor t = in[0];
    for (int k = 0; k < 6; ++k) {
      doubled_on(side, t * 1.5);
      t = t + 0.5;
    }
    return std::vector{sum(t)};
  });
  const Tensor x = ones({1 << 20}, f32);
  for (int i = 0; i < 4; ++i) {
    graph({x});
    synchronize(current_stream(device));
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

TEST_F(SimCapturedStep, MayBeCalledOnStreamsInTurns) {
  const NoGradGuard no_grad;
  const Tensor weight = ones({64, 64}, f32);
  StepGraph graph(
      [&](std::span<const Tensor> in) { return std::vector{sum(matmul(in[0], weight))}; });
  std::vector<Tensor> xs, results;
  for (int i = 0; i < 12; ++i) xs.push_back(full({8, 64}, i, f32));
  const Stream one(device), other(device);
  synchronize(current_stream(device));
  for (int i = 0; i < 12; ++i) {
    const StreamGuard guard(i % 2 ? one : other);
    results.push_back(graph({xs[i]})[0].clone());
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  synchronize(one);
  synchronize(other);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(results[i].item(), 8.0 * 64 * 64 * i);
}

TEST_F(SimCapturedStep, MayBeginWithZeroGradWhateverItsSize) {
  Tensor a = ones({600, 600}, f32).set_requires_grad(),
         b = ones({600, 608}, f32).set_requires_grad();
  optim::SGD optimizer({a, b}, {.lr = 1e-9});
  StepGraph graph([&](std::span<const Tensor> in) {
    optimizer.zero_grad();
    const Tensor loss = mean(matmul(matmul(in[0], a), b));
    loss.backward();
    optimizer.step();
    return std::vector{loss};
  });
  const Tensor x = ones({8, 600}, f32);
  for (int i = 0; i < 7; ++i) graph({x});
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

// The stream takes part in the capture, and an event on it could not be asked any more.
TEST_F(SimCapturedStep, LetsOtherThreadsReturnMemoryOfItsStreams) {
  const Stream side(device);
  Tensor batch = ones({500'000}, f32);
  synchronize(current_stream(device));
  {
    const StreamGuard guard(side);
    batch * 2.0;
    batch.record_stream(side);
  }
  synchronize(side);
  int calls = 0;
  StepGraph graph([&](std::span<const Tensor> in) {
    const Tensor z = doubled_on(side, in[0]);
    if (++calls == 4) std::thread([&] { batch = {}; }).join();  // captured
    return std::vector{z + 1.0};
  });
  for (int i = 0; i < 6; ++i) EXPECT_EQ(numbers(graph({full({4}, i, f32)})[0])[3], 2.0 * i + 1);
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(empty({1'000'000}, f32));
}

// Until the capture ends, it would capture the other's work.
TEST_F(SimCapturedStep, KeepsAStreamThatEndsInItFromOtherThreads) {
  const Tensor host = ones({1000}).pin_memory();
  int calls = 0;
  Tensor copied;
  StepGraph graph([&](std::span<const Tensor> in) {
    Tensor z;
    {
      const Stream side(device);
      z = doubled_on(side, in[0] + 1.0);
    }
    if (++calls == 4)  // captured
      std::thread([&] {
        const Stream own(device);
        const StreamGuard guard(own);
        copied = host.to(device, true);
        synchronize(own);
      }).join();
    return std::vector{z + 1.0};
  });
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(numbers(graph({full({4}, i, f32)})[0])[3], 2.0 * (i + 1) + 1);
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  EXPECT_EQ(sum(copied).item(), 1000.0);
}

}  // namespace
}  // namespace simgpu
