// Parameters that are gathered behind an update, or when they are used, over any group.

#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/sharded_training.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GatherContract);

bool is_under_way(const Tensor& parameter) { return parameter.impl().storage->gate() != nullptr; }

// Waits for the device too, of which a use after it need not any more.
void read(const Tensor& parameter) {
  (void)parameter.to_vector<double>();
  (void)parameter.data_ptr();
}

void read_all(const Replica& replica) {
  for (const Tensor& parameter : replica.module().parameters()) read(parameter);
}

// The optimizer returns while parameters are gathered; each bucket is waited for by its first use.
TEST_P(GatherContract, WaitsForGathersOfWhatIsUsedAlone) {
  run([](Communicator& group) {
    for (const int stage : {1, 2}) {
      Replica replica = sharded(group, stage, 1);
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      const std::vector<Tensor> parameters = replica.module().parameters();
      for (const Tensor& parameter : parameters) EXPECT_FALSE(is_under_way(parameter));
      step_on(replica, own_part(group, 0));
      optimizer.step();
      for (const Tensor& parameter : parameters) EXPECT_TRUE(is_under_way(parameter));
      EXPECT_EQ(parameters[3].shape(), Shape({16}));  // of what has been known all along
      read(parameters[2]);
      EXPECT_FALSE(is_under_way(parameters[2]));
      EXPECT_TRUE(is_under_way(parameters[3]));
      optimizer.zero_grad();
      step_on(replica, own_part(group, 1));
      for (const Tensor& parameter : parameters) read(parameter);
      for (const Tensor& parameter : parameters) EXPECT_FALSE(is_under_way(parameter));
      expect_equal_replicas(group, replica.module());
    }
  });
}

// Whoever reads a parameter behind the optimizer, by whatever way, reads what was gathered.
TEST_P(GatherContract, ShowsGatheredValuesToWhoeverReads) {
  run([](Communicator& group) {
    const auto train = [&](int stage) {
      Replica replica = sharded(group, stage, 1);
      const auto module = replica.module().named_parameters();
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      optim::WeightAverage average(module, {.decay = 0.5});
      DivergenceCheck check(module, share(group), {.every = 1});
      const NamedTensors views = replica.module().state_dict();  // from before
      std::vector<double> read;
      const auto note = [&](const Tensor& tensor) {
        for (const double value : tensor.to_vector<double>()) read.push_back(value);
      };
      for (int step = 0; step < 6; ++step) {
        const Batch batch = own_part(group, step);
        step_on(replica, batch);
        optimizer.step();
        const NoGradGuard no_recording;
        if (step == 0) note(module[0].second);
        if (step == 1) note(views[0].second);
        if (step == 2) note(replica.module().forward(batch.x));
        if (step == 3) note(replica.module().state_dict()[0].second.t());
        if (step == 4) note(module[0].second[0] * 2.0);
        if (step == 5) note(replica(batch.x));
        average.update();
        check.step();
        optimizer.zero_grad();
      }
      for (const auto& [name, tensor] : average.state_dict()) note(tensor);
      return read;
    };
    const auto whole = train(0);
    for (const int stage : {1, 2}) expect_close(train(stage), whole, 1e-9, 1e-11);
  });
}

// A captured evaluation asks for the memory of parameters once, not with each launch.
TEST_P(GatherContract, ShowsGatheredValuesToCapturedSteps) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 1, 1);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    StepGraph graph = captured_evaluation(replica);
    for (int step = 0; step < 6; ++step) {
      const Batch batch = own_part(group, step);
      step_on(replica, batch);
      optimizer.step();
      optimizer.zero_grad();
      const std::vector<Tensor> in{batch.x};
      const auto seen = graph(in)[0].template to_vector<double>();
      const NoGradGuard no_recording;
      EXPECT_EQ(seen, replica.module().forward(batch.x).template to_vector<double>());
    }
    EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  });
}

// The one that evaluates is told when the other one has queued an update.
TEST_P(GatherContract, ShowsGatheredValuesToCapturedStepsOfAnotherThread) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 1, 1);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    StepGraph graph = captured_evaluation(replica);
    std::binary_semaphore updated(0), evaluated(0);
    constexpr std::size_t steps = 9;
    std::vector<std::vector<double>> seen(steps), expected(steps);
    std::thread evaluator([&, device = device_of_rank] {
      device_of_rank = device;
      for (std::size_t step = 0; step < steps; ++step) {
        updated.acquire();
        const std::vector<Tensor> in{own_part(group, static_cast<int>(step)).x};
        seen[step] = graph(in)[0].template to_vector<double>();
        evaluated.release();
      }
      EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
    });
    for (std::size_t step = 0; step < steps; ++step) {
      const Batch batch = own_part(group, static_cast<int>(step));
      step_on(replica, batch);
      optimizer.step();
      if (step < 5) read_all(replica);  // before the graph is captured
      optimizer.zero_grad();
      updated.release();
      evaluated.acquire();
      const NoGradGuard no_recording;
      expected[step] = replica.module().forward(batch.x).template to_vector<double>();
    }
    evaluator.join();
    EXPECT_EQ(seen, expected);
  });
}

// Whether a parameter has memory: one that was not used, or was let go again, has not.
bool has_memory(const Tensor& parameter) { return parameter.impl().storage->data() != nullptr; }

int count_with_memory(const nn::Module& module) {
  int count = 0;
  for (const Tensor& parameter : module.parameters()) count += has_memory(parameter);
  return count;
}

TEST_P(GatherContract, HasParametersWhileModulesUseThemAlone) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 3, 1);  // each parameter in a bucket of its own
    int most = 0;
    for (const auto& layer : *replica.module().layers)
      layer->add_call_hooks({.before = [&](nn::Module&, auto) {
        most = std::max(most, count_with_memory(replica.module()));
      }});
    replica.module().calls_layers = true;
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    EXPECT_EQ(count_with_memory(replica.module()), 0);
    for (int step = 0; step < 3; ++step) {
      const Batch batch = own_part(group, step);
      const Tensor loss = loss_of(replica(batch.x), batch);
      EXPECT_LE(most, 3);
      loss.backward();
      EXPECT_EQ(count_with_memory(replica.module()), 0);
      optimizer.step();
      optimizer.zero_grad();
      const NoGradGuard no_recording;
      (void)replica(batch.x);
      EXPECT_EQ(count_with_memory(replica.module()), 0);
    }
  });
}

// Micro-batches, checkpointed parts, retained graphs and several forwards before a backward read
// what was saved for them after it was let go.
TEST_P(GatherContract, BringsBackWhatBackwardsSaved) {
  run([](Communicator& group) {
    const auto train = [&](int stage, DType dtype) {
      Replica replica = sharded(group, stage, 1, dtype);
      replica.module().calls_layers = true;
      optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
      for (int step = 0; step < 4; ++step) {
        const Batch batch = own_part(group, step, dtype), other = own_part(group, step + 9, dtype);
        {
          const auto local = replica.no_sync();
          const Tensor first = loss_of(replica(batch.x), batch);
          const Tensor second = loss_of(replica(other.x), other);
          first.backward({}, true);
          second.backward();
          first.backward();
        }
        replica.module().checkpoints = step % 2 == 1;
        loss_of(replica(batch.x), batch).backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      const auto all = replica.whole_parameters();
      expect_equal_replicas(group, replica.module());
      return values_of(replica.module());
    };
    for (const DType dtype : {DType::f64, DType::f32})
      expect_close(train(3, dtype), train(2, dtype), dtype == DType::f64 ? 1e-12 : 1e-4, 1e-6);
  });
}

TEST_P(GatherContract, TakesOverWhatIsWrittenToWholeParameters) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 3), other = sharded(group, 0);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    const auto fresh = make_net(99);
    {
      const auto all = replica.whole_parameters();
      replica.module().load_state_dict(fresh->state_dict());
    }
    other.module().load_state_dict(fresh->state_dict());
    const Batch batch = own_part(group, 0);
    const NoGradGuard no_recording;
    EXPECT_EQ(replica(batch.x).template to_vector<double>(),
              other(batch.x).template to_vector<double>());
    NamedTensors state;
    {
      const auto all = replica.whole_parameters();
      state = replica.module().state_dict();
    }
    const NamedTensors expected = fresh->state_dict();
    for (std::size_t i = 0; i < state.size(); ++i)  // which keeps what it shows
      EXPECT_EQ(state[i].second.template to_vector<double>(),
                expected[i].second.template to_vector<double>());
  });
}

TEST_P(GatherContract, SaysWhatDoesNotGoWithParametersThatAreGathered) {
  run([](Communicator& group) {
    using ::testing::AllOf;
    using ::testing::HasSubstr;
    Replica replica = sharded(group, 3);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    const Batch batch = own_part(group, 0);
    const auto outside = AllOf(HasSubstr("layers.0.weight"), HasSubstr("whole_parameters()"));
    EXPECT_THAT(message_of([&] { replica.module().forward(batch.x); }), outside);
    EXPECT_THAT(message_of([&] { replica.module().state_dict(); }), outside);
    EXPECT_THAT(message_of([&] { replica.backward_without_data(); }), HasSubstr("zero_stage 3"));
    EXPECT_THAT(message_of([&] {
                  Replica(make_net(1), share(group), {.static_graph = true, .zero_stage = 3});
                }),
                HasSubstr("give zero_stage 2"));
    step_on(replica, batch);
    {
      const auto all = replica.whole_parameters();
      EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("whole_parameters()"));
    }
  });
}

TEST_P(GatherContract, LetsCapturedForwardsRunEagerly) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 3);
    const StepGraph::Step step = [&](std::span<const Tensor> in) {
      return std::vector{replica(in[0]).detach()};
    };
    StepGraph graph(step, {.group = share(group)});
    const std::vector<Tensor> in{own_part(group, 0).x};
    for (int i = 0; i < 4; ++i) {
      const NoGradGuard no_recording;
      (void)graph(in);
    }
    EXPECT_THAT(graph.fallback_reason(), ::testing::HasSubstr("zero_stage 3"));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
