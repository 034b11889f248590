// Captured steps of several ranks.

#include <array>
#include <bit>
#include <cstdint>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StepGraphContract);

struct CapturedNet : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 16, 32};
  nn::Child<nn::Dropout> dropout{this, "dropout", 0.2};
  nn::Child<nn::Linear> last{this, "last", 32, 8};
  Tensor forward(const Tensor& x) { return last(dropout(gelu(first(x)))); }
};

// Two micro-batches in f16 with loss scaling, clipping and a schedule.
struct CapturedTraining {
  nn::ModulePtr<CapturedNet> net;
  DistributedDataParallel<CapturedNet> replica;
  optim::AdamW optimizer;
  optim::LRScheduler scheduler;
  amp::GradScaler scaler = amp::GradScaler({.init_scale = 65536.0 * 64, .growth_interval = 6});

  explicit CapturedTraining(const CommunicatorPtr& group)
      : net(on_device(group->device())),
        replica(net, group, {.bucket_bytes = 1 << 10, .first_bucket_bytes = 1 << 8}),
        optimizer(optim::groups_by<optim::AdamWOptions>(
            replica.named_parameters(), optim::with_name({"first"}), {.lr = 1e-2},
            {.lr = 1e-2, .state_format = optim::StateFormat::bf16})),
        scheduler(optimizer, optim::CosineAnnealingLR{.iterations = 60}) {}

  static nn::ModulePtr<CapturedNet> on_device(Device device) {
    auto net = nn::make<CapturedNet>();
    net->to(device);
    return net;
  }

  std::vector<Tensor> step(std::span<const Tensor> in) {
    Tensor total = zeros({}, {.device = in[0].device()});
    {
      const amp::Autocast mixed(DType::f16);
      for (int part = 0; part < 2; ++part) {
        std::optional<DistributedDataParallel<CapturedNet>::NoSync> local;
        if (part == 0) local.emplace(replica.no_sync());
        const auto half = [&](const Tensor& t) { return t.slice(0, 4 * part, 4 * part + 4); };
        const Tensor loss = mse_loss(replica(half(in[0])), half(in[1])) * 0.5;
        scaler.scale(loss).backward();
        total.add_(loss.detach());
      }
    }
    scaler.unscale_(optimizer);
    const Tensor norm = optim::clip_grad_norm_(replica.parameters(), 1.0);
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    return {total, norm};
  }
};

// What a training leaves, bit by bit.
struct StepTrace {
  std::vector<double> numbers;
  int replays = 0;
  std::string reason;
};

StepTrace trace_steps(const CommunicatorPtr& group, int steps, bool capture) {
  manual_seed(3 + static_cast<std::uint64_t>(group->rank()));
  CapturedTraining training(group);
  const StepGraph::Step step = [&](std::span<const Tensor> in) { return training.step(in); };
  StepGraph graph(step, {.group = group});
  StepTrace trace;
  const auto note = [&](const Tensor& t) {
    for (const double value : t.to_vector<double>()) trace.numbers.push_back(value);
  };
  for (int i = 0; i < steps; ++i) {
    const std::vector<Tensor> in{values({8, 16}, i + 100 * group->rank()).to(DType::f32),
                                 values({8, 8}, i + 7).to(DType::f32)};
    for (const Tensor& result : capture ? graph(in) : step(in)) note(result);
    trace.numbers.push_back(training.scaler.get_scale());
    trace.replays += graph.replayed();
    if (capture && i >= 4) trace.reason = graph.fallback_reason();
    training.scheduler.step();
    note(rand({2}, {.device = group->device()}));  // draws go on behind those of the step
  }
  for (const Tensor& parameter : training.replica.parameters()) note(parameter);
  return trace;
}

TEST_P(StepGraphContract, GiveTheBitsOfEagerOnes) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    constexpr int steps = 50;
    const StepTrace eager = trace_steps(group, steps, false);
    const StepTrace captured = trace_steps(group, steps, true);
    EXPECT_EQ(captured.reason, "");
    EXPECT_EQ(captured.replays, steps - 3);
    ASSERT_EQ(eager.numbers.size(), captured.numbers.size());
    for (std::size_t i = 0; i < eager.numbers.size(); ++i)  // norms of skipped steps are NaN
      ASSERT_EQ(std::bit_cast<std::uint64_t>(eager.numbers[i]),
                std::bit_cast<std::uint64_t>(captured.numbers[i]))
          << "number " << i;
    // Some steps were skipped: the scale went up and down.
    const double first = eager.numbers[2];
    EXPECT_LT(eager.numbers[5 * 5 + 2], first);
  });
}

// The last rank reads values on the host, before its collectives or after them.
void train_where_one_rank_cannot_capture(const CommunicatorPtr& group, bool reads_early) {
  const bool is_last = group->rank() == group->size() - 1;
  const auto net = CapturedTraining::on_device(group->device());
  DistributedDataParallel replica(net, group);
  StepGraph graph(
      [&](std::span<const Tensor> in) {
        if (is_last && reads_early) in[0].sum().item();
        const Tensor loss = replica(in[0]).sum();
        loss.backward();
        if (is_last && !reads_early) loss.item();
        for (const Tensor& parameter : replica.parameters()) Tensor(parameter).set_grad({});
        return std::vector{loss};
      },
      {.num_warmup_iters = 2, .group = group});
  const Tensor x = values({8, 16}, 1).to(DType::f32);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(graph({x}).size(), 1u);
  const bool stands_alone = group->device().is_cpu() && !is_last;
  EXPECT_EQ(graph.replayed(), stands_alone) << graph.fallback_reason();
  if (!stands_alone) {
    EXPECT_NE(graph.fallback_reason().find("values are read on the host"), std::string::npos)
        << graph.fallback_reason();
  }
}

// NCCL wants a step captured on all ranks or on none; on hosts one may be eager alone.
TEST_P(StepGraphContract, GoOnWhereOneRankCannotCapture) {
  run([](Communicator& world) { train_where_one_rank_cannot_capture(share(world), false); });
}

// NCCL may exchange on the host while collectives are captured: nobody may wait there for one that
// does not come.
TEST_P(StepGraphContract, GoOnWhereOneRankGivesUpBeforeItsCollectives) {
  run([](Communicator& world) { train_where_one_rank_cannot_capture(share(world), true); });
}

TEST_P(StepGraphContract, ReduceAnewInEachLaunch) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    StepGraph graph(
        [&](std::span<const Tensor> in) {
          return std::vector{all_reduce_async(in[0], *group).wait() * 2};
        },
        {.num_warmup_iters = 1, .group = group});
    for (int i = 0; i < 5; ++i) {
      Tensor sum = zeros({4}, {DType::f64, group->device()});
      for (int rank = 0; rank < group->size(); ++rank) sum.add_(values({4}, 10 * i + rank));
      expect_close(graph({values({4}, 10 * i + group->rank())})[0], sum * 2);
    }
    EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  });
}

// What an accumulation leaves whose last backward alone is in the step.
std::vector<double> train_the_end_of_accumulations(const CommunicatorPtr& group, bool capture) {
  manual_seed(5);
  const auto net = CapturedTraining::on_device(group->device());
  net->eval();
  DistributedDataParallel replica(net, group);
  optim::SGD optimizer(replica.named_parameters(), {.lr = 1e-2});
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    replica(in[0]).square().mean().backward();
    optimizer.step();
    return std::vector<Tensor>{};
  };
  StepGraph graph(step, {.group = group});
  for (int i = 0; i < 9; ++i) {
    const Tensor x = values({4, 16}, i + 10 * group->rank()).to(DType::f32);
    {
      const auto local = replica.no_sync();
      (replica(x).square().mean() * 0.5).backward();
    }
    if (capture)
      graph({x});
    else
      step(std::array{x});
    optimizer.zero_grad(false);
  }
  std::vector<double> all;
  for (const Tensor& parameter : replica.parameters())
    for (const double value : parameter.detach().to(DType::f64).to_vector<double>())
      all.push_back(value);
  return all;
}

TEST_P(StepGraphContract, EndAccumulationsThatBeganOutside) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    EXPECT_EQ(train_the_end_of_accumulations(group, true),
              train_the_end_of_accumulations(group, false));
  });
}

// What a step with gradients from a backward outside of it, before call `left`, makes of a weight.
// `nested`: the step is part of another.
std::vector<double> train_behind_a_backward(bool capture, int left, bool nested = false) {
  Tensor weight = values({4, 4}, 2).set_requires_grad();
  optim::SGD optimizer({weight}, {.lr = 1e-3});
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    const Tensor loss = matmul(in[0], weight).square().sum();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss};
  };
  StepGraph inner(step);
  StepGraph graph(nested ? [&](std::span<const Tensor> in) { return inner(in); } : step);
  std::vector<double> all;
  for (int i = 0; i < 8; ++i) {
    const Tensor x = values({2, 4}, i);
    if (i == left) matmul(x, weight).sum().backward();
    all.push_back((capture ? graph({x}) : step(std::array{x}))[0].item());
  }
  EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
  for (const double value : weight.to_vector<double>()) all.push_back(value);
  return all;
}

// Memory of the caller that goes back while a step works on it. The simulated GPU reports whoever
// uses it behind that.
TEST_P(StepGraphContract, TakeGradientsThatABackwardOutsideHasLeft) {
  run([](Communicator&) {
    for (int left = 1; left < 6; ++left)
      EXPECT_EQ(train_behind_a_backward(true, left), train_behind_a_backward(false, left)) << left;
  });
}

// All ranks do so, if one does.
TEST_P(StepGraphContract, RunEagerlyWhereOneRankReplacesWhatItHasRead) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const bool is_last = group->rank() == group->size() - 1;
    Tensor state = values({2, 3}, 1), expected = state;
    StepGraph graph(
        [&](std::span<const Tensor> in) {
          const Tensor next = state * 0.5 + in[0];
          if (is_last) state = next;
          return std::vector{all_reduce_async(next, *group).wait()};
        },
        {.group = group});
    for (int i = 0; i < 7; ++i) {
      const Tensor x = values({2, 3}, i);
      graph({x});
      if (is_last) expected = expected * 0.5 + x;
    }
    expect_close(state, expected);
    if (!group->device().is_cpu() || is_last) {
      EXPECT_FALSE(graph.replayed());
      EXPECT_NE(graph.fallback_reason().find("shape [2, 3] that mul reads"), std::string::npos)
          << graph.fallback_reason();
    }
  });
}

// The first calls add nothing up outside of the step, so that they refuse nothing.
std::vector<double> train_with_weights_from_outside(const CommunicatorPtr& group, bool capture,
                                                    int zero_stage) {
  manual_seed(5);
  auto net =
      nn::make<nn::Linear>(4, 3, TensorOptions{.dtype = DType::f64, .device = group->device()});
  DistributedDataParallel<nn::Linear> replica(net, group, {.zero_stage = zero_stage});
  optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  const auto add = [&](const Tensor& x) {
    const Tensor loss = (replica(x) - 0.3).square().mean();
    replica.backward(loss, static_cast<double>(x.size(0)));
    return loss;
  };
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    const Tensor loss = add(in[0]);
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss};
  };
  StepGraph graph(step, {.group = group});
  std::vector<double> all;
  for (int i = 0; i < 10; ++i) {
    const auto x = [&](int rows, int seed) {
      return values({rows, 4}, 10 * i + seed + group->rank());
    };
    if (i >= 3 && i % 3 != 1) {
      const auto no_sync = replica.no_sync();
      add(x(1 + (i + group->rank()) % 4, 5));
    }
    all.push_back((capture ? graph({x(3, 9)}) : step(std::array{x(3, 9)}))[0].item());
  }
  for (const Tensor& parameter : net->parameters()) all.push_back(parameter.detach().sum().item());
  return all;
}

TEST_P(StepGraphContract, RunEagerlyWhereWeightsWereAddedUpOutside) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    for (const int zero_stage : {0, 2})
      EXPECT_EQ(train_with_weights_from_outside(group, true, zero_stage),
                train_with_weights_from_outside(group, false, zero_stage));
  });
}

// What a call of the step keeps for the next one: the gradient, the seed of its backward.
std::vector<double> train_with_a_memory(bool capture, bool keeps_gradient) {
  Tensor weight = leaf({4, 4}, 2), state = keeps_gradient ? Tensor() : values({2, 4}, 3);
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    const Tensor y = matmul(in[0], weight);
    y.backward(keeps_gradient ? y.detach() : state);
    const NoGradGuard no_recording;
    const Tensor gradient = weight.grad();
    weight.sub_(keeps_gradient && state.defined() ? gradient * 0.2 - state * 0.1 : gradient * 0.1);
    state = keeps_gradient ? gradient : y.detach() * 0.5;
    weight.set_grad({});
    return std::vector{y.detach()};
  };
  StepGraph graph(step);
  for (int i = 0; i < 7; ++i) {
    const Tensor x = values({2, 4}, i);
    capture ? graph({x}) : step(std::array{x});
  }
  EXPECT_FALSE(graph.replayed());
  return weight.to_vector<double>();
}

TEST_P(StepGraphContract, RunEagerlyWhereTheyKeepWhatTheyRead) {
  run([](Communicator&) {
    for (const bool keeps_gradient : {true, false})
      EXPECT_EQ(train_with_a_memory(true, keeps_gradient),
                train_with_a_memory(false, keeps_gradient));
  });
}

// Each in the first calls of the other, when it hands memory of the caller back.
TEST_P(StepGraphContract, MayBePartsOfOthers) {
  run([](Communicator&) {
    for (int left = 1; left < 4; ++left)
      EXPECT_EQ(train_behind_a_backward(true, left, true), train_behind_a_backward(false, left))
          << left;
  });
}

// In the call that is captured alone, so that the first calls cannot tell. Where ranks agree, the
// function is called twice for it, and the state of before is lost: on every rank, though but one
// has replaced it.
TEST_P(StepGraphContract, AreRightWhereTheCaptureAloneReplacesWhatItHasRead) {
  for (const bool on_all : {true, false})
    run([on_all](Communicator& world) {
      const CommunicatorPtr group = share(world);
      const bool agrees = group->size() > 1 && !group->device().is_cpu();
      if (!on_all && !agrees) return;
      Tensor state = values({2, 3}, 1), expected = state.clone();
      int calls = 0;
      StepGraph graph(
          [&](std::span<const Tensor> in) {
            const Tensor next = state * 0.5 + in[0];
            if (calls++ == 3 && (on_all || group->rank() == 0)) state = next;
            return std::vector{all_reduce_async(next, *group).wait()};
          },
          {.group = group});
      for (int i = 0; i < 7; ++i) {
        const Tensor x = values({2, 3}, i);
        if (i == 3 && agrees) {
          const std::string message = message_of<InvalidArgument>([&] { graph({x}); });
          EXPECT_NE(message.find("an input and a result"), std::string::npos) << message;
          return;
        }
        const Tensor next = expected * 0.5 + x;
        if (i == 3) expected = next;
        expect_close(graph({x})[0], next * static_cast<double>(group->size()));
      }
      expect_close(state, expected);
    });
}

// A head and its states that the first call of a further shape makes.
TEST_P(StepGraphContract, DoNotOverwriteWhatALaterShapeHasMade) {
  run([](Communicator&) {
    const auto train = [](bool capture) {
      const std::vector<Tensor> heads = {leaf({4, 4}, 2), leaf({4, 4}, 3)};
      optim::AdamW optimizer(heads, {.lr = 0.02});
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        const Tensor loss = matmul(in[0], heads[in[0].size(0) == 4 ? 0 : 1]).square().mean();
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss};
      };
      StepGraph graph(step);
      std::vector<double> all;
      for (int i = 0; i < 18; ++i) {
        const Tensor x = values({i < 6 || i % 2 == 0 ? 4 : 5, 4}, i);
        all.push_back((capture ? graph({x}) : step(std::array{x}))[0].item());
      }
      EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
      return all;
    };
    EXPECT_EQ(train(true), train(false));
  });
}

// A table that lies in memory of the first shape's graph on rank 0 alone, whose batches are larger.
TEST_P(StepGraphContract, EndAlikeWhereOneRankAloneKeepsMemoryOfAnotherShape) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const auto train = [&](bool capture) {
      Tensor weight = leaf({256}, 2), table;
      optim::SGD optimizer({weight}, {.lr = 0.1});
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        const bool is_first = in[0].dim() == 2;
        if (!is_first && !table.defined()) table = full({256, 256}, 0.5, in[0].options());
        const Tensor loss =
            is_first ? ((in[0] * weight).square() + 1.0).mean() : (in[0] * weight * table).mean();
        loss.backward();
        weight.set_grad(all_reduce_async(weight.grad(), *group).wait());
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss};
      };
      StepGraph graph(step, {.group = group});
      std::vector<double> all;
      for (int i = 0; i < 16; ++i) {
        const Tensor x =
            i > 4 && i % 2 == 1 ? values({256}, i) : values({group->rank() == 0 ? 256 : 2, 256}, i);
        all.push_back((capture ? graph({x}) : step(std::array{x}))[0].item());
      }
      EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
      return all;
    };
    EXPECT_EQ(train(true), train(false));
  });
}

TEST_P(StepGraphContract, AreToldTheirGroupWhereAllMustCapture) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    Tensor weight = values({4}, 2).set_requires_grad();
    StepGraph graph([&](std::span<const Tensor> in) {
      (in[0] * weight).sum().backward();
      return std::vector{all_reduce_async(in[0], *group).wait()};
    });
    const Tensor x = values({4}, 1);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(graph({x}).size(), 1u);
      expect_close(weight.grad(), x);  // also where a capture that succeeded here was given up
      weight.set_grad({});
    }
    const bool may_stand_alone = group->size() == 1 || group->device().is_cpu();
    EXPECT_EQ(graph.replayed(), may_stand_alone);
    if (!may_stand_alone) {
      EXPECT_NE(graph.fallback_reason().find("StepGraphOptions::group"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
