#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/replicas.hpp"

/// @file
/// Ranks that share out optimizer states and gradients, over any group.

namespace lockstep::parallel::testing {

template <class World>
class ZeroContract : public ::testing::Test {};
TYPED_TEST_SUITE_P(ZeroContract);

inline Replica sharded(Communicator& group, int stage, std::size_t bucket = 1 << 10,
                       DType dtype = DType::f64) {
  return Replica(make_net(7 + static_cast<std::uint64_t>(group.rank()), dtype), share(group),
                 {.bucket_bytes = bucket, .first_bucket_bytes = bucket, .zero_stage = stage});
}

inline void step_on(Replica& replica, const Batch& batch) {
  loss_of(replica(batch.x), batch).backward();
}

inline Batch own_part(Communicator& group, int step, DType dtype = DType::f64) {
  return Batch::of_step(step, dtype).part(group.rank(), group.size());
}

/// Values after some steps, the last of which has another learning rate.
template <class Make>
std::vector<double> train_sharded(Communicator& group, int stage, std::size_t bucket, DType dtype,
                                  const Make& make_optimizer) {
  Replica replica = sharded(group, stage, bucket, dtype);
  const auto optimizer = make_optimizer(replica.named_parameters(), stage > 0);
  for (int step = 0; step < 4; ++step) {
    if (step == 3) optimizer->set_lr(0.5 * optimizer->lr());
    step_on(replica, own_part(group, step, dtype));
    optimizer->step();
    optimizer->zero_grad();
  }
  const auto all = replica.whole_parameters();
  expect_equal_replicas(group, replica.module());
  return values_of(replica.module());
}

/// Bit for bit, where sums do not depend on how they are cut.
template <class Make>
void expect_steps_of_whole_states(Communicator& group, DType dtype, const Make& make) {
  for (const std::size_t bucket : {std::size_t{1}, std::size_t{1} << 10, std::size_t{25} << 20}) {
    const auto whole = train_sharded(group, 0, bucket, dtype, make);
    for (const int stage : {1, 2, 3}) {
      const auto shared = train_sharded(group, stage, bucket, dtype, make);
      if (group.backend() != "nccl" || group.size() <= 2)
        EXPECT_EQ(shared, whole) << "stage " << stage << ", buckets of " << bucket;
      else
        expect_close(shared, whole, 1e-2, 1e-2);
    }
  }
}

template <class O>
auto made(typename O::Options options) {
  return [options](const NamedTensors& parameters, bool) {
    return std::make_unique<O>(parameters, options);
  };
}

TYPED_TEST_P(ZeroContract, UpdatesToTheBitsOfWholeStates) {
  TypeParam::run([](Communicator& group) {
    const auto decaying = [](const NamedTensors& parameters, bool) {
      return std::make_unique<optim::AdamW>(
          optim::decay_groups(parameters, optim::AdamWOptions{.lr = 1e-2, .weight_decay = 0.3}));
    };
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
      expect_steps_of_whole_states(group, dtype, decaying);
  });
}

TYPED_TEST_P(ZeroContract, TakesEveryOptimizerThatUpdatesElementByElement) {
  TypeParam::run([](Communicator& group) {
    const auto expect = [&](const auto& make) {
      const auto whole = train_sharded(group, 0, 1 << 8, DType::f32, make);
      for (const int stage : {2, 3})
        expect_close(train_sharded(group, stage, 1 << 8, DType::f32, make), whole, 1e-4, 1e-5);
    };
    expect(made<optim::SGD>({.lr = 0.1, .momentum = 0.9}));
    expect(made<optim::Adam>({.lr = 1e-2}));
    expect(made<optim::Adagrad>({.lr = 1e-2}));
    expect(made<optim::RMSprop>({.lr = 1e-3}));
    expect(made<optim::NAdam>({.lr = 1e-2}));
    expect(made<optim::RAdam>({.lr = 1e-2}));
    expect(made<optim::Adamax>({.lr = 1e-2}));
    expect(made<optim::Lion>({.lr = 1e-3}));
  });
}

TYPED_TEST_P(ZeroContract, TakesNormsOfWholeParametersOverTheGroup) {
  TypeParam::run([](Communicator& group) {
    const auto expect = [&]<class O>(std::type_identity<O>, typename O::Options options) {
      const auto make = [&](const NamedTensors& parameters, bool is_sharded) {
        return std::make_unique<O>(parameters, options, is_sharded ? share(group) : nullptr);
      };
      const auto whole = train_sharded(group, 0, 1 << 8, DType::f64, make);
      for (const int stage : {1, 2, 3})
        expect_close(train_sharded(group, stage, 1 << 8, DType::f64, make), whole, 1e-9, 1e-11);
    };
    expect(std::type_identity<optim::LARS>{}, {.lr = 0.5, .trust_coefficient = 0.1});
    expect(std::type_identity<optim::LAMB>{}, {.lr = 0.1, .weight_decay = 0.1});
  });
}

TYPED_TEST_P(ZeroContract, ClipsAndScalesOverTheGroup) {
  TypeParam::run([](Communicator& group) {
    const auto train = [&](int stage, bool scales) {
      Replica replica = sharded(group, stage, 1 << 8, DType::f32);
      optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
      const CommunicatorPtr shards = stage > 0 ? share(group) : nullptr;
      amp::GradScaler scaler({.init_scale = 1024, .enabled = scales, .group = shards});
      std::vector<double> norms;
      for (int step = 0; step < 4; ++step) {
        Batch batch = own_part(group, step, DType::f32);
        const bool overflows = scales && step == 2 && group.rank() == group.size() - 1;
        if (overflows) batch.x = batch.x * std::numeric_limits<double>::infinity();
        scaler.scale(loss_of(replica(batch.x), batch)).backward();
        const Tensor norm =
            scales ? scaler.clip_and_step(optimizer, 0.1)
                   : optim::clip_grad_norm_(replica.parameters(), 0.1, {.group = shards});
        if (!scales) optimizer.step();
        scaler.update();
        optimizer.zero_grad();
        norms.push_back(std::isfinite(norm.item()) ? norm.item() : -1);
      }
      const auto gathered = replica.whole_parameters();
      expect_equal_replicas(group, replica.module());
      std::vector<double> all = values_of(replica.module());
      all.insert(all.end(), norms.begin(), norms.end());
      return all;
    };
    for (const bool scales : {false, true}) {
      const auto whole = train(0, scales);
      for (const int stage : {1, 2, 3}) expect_close(train(stage, scales), whole, 1e-4, 1e-5);
    }
  });
}

// A state dict is that of whole states, also for another number of ranks.
TYPED_TEST_P(ZeroContract, GathersAndSharesOutStateDicts) {
  TypeParam::run([](Communicator& group) {
    Replica whole = sharded(group, 0), first = sharded(group, 1), second = sharded(group, 2, 1);
    optim::AdamW of_whole(whole.named_parameters(), {.lr = 1e-2}),
        of_first(first.named_parameters(), {.lr = 1e-2}),
        of_second(second.named_parameters(), {.lr = 1e-3});
    const auto step = [&](Replica& replica, optim::Optimizer& optimizer, int number) {
      step_on(replica, own_part(group, number));
      optimizer.step();
      optimizer.zero_grad();
    };
    for (int number = 0; number < 2; ++number) {
      step(whole, of_whole, number);
      step(first, of_first, number);
    }
    const NamedTensors expected = of_whole.state_dict(),
                       gathered = first.gather_optimizer_state(of_first.state_dict());
    ASSERT_EQ(gathered.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(gathered[i].first, expected[i].first);
      EXPECT_EQ(gathered[i].second.shape(), expected[i].second.shape()) << expected[i].first;
      expect_close(gathered[i].second.template to_vector<double>(),
                   expected[i].second.template to_vector<double>(), 1e-6, 1e-9);
    }
    of_second.load_state_dict(second.shard_optimizer_state(gathered));
    second.module().load_state_dict(first.module().state_dict());
    step(first, of_first, 2);
    step(second, of_second, 2);
    expect_close(values_of(second.module()), values_of(first.module()), 1e-12, 1e-13);
  });
}

TYPED_TEST_P(ZeroContract, AccumulatesLeavesOutAndWeighs) {
  TypeParam::run([](Communicator& group) {
    for (const int stage : {1, 2}) {
      Replica replica(make_net(1), share(group),
                      {.bucket_bytes = 1 << 9,
                       .first_bucket_bytes = 1 << 9,
                       .static_graph = true,
                       .zero_stage = stage});
      const auto alone = make_net(1);
      optim::AdamW shared(replica.named_parameters(), {.lr = 1e-2}),
          all(alone->named_parameters(), {.lr = 1e-2});
      const std::vector<std::size_t> skipped{2};
      for (int step = 0; step < 4; ++step) {
        const Batch batch = Batch::of_step(step);
        {
          const auto local = replica.no_sync();
          replica.backward(loss_of(replica(batch.x, skipped), batch), 1.0);
        }
        loss_of(alone->forward(batch.x, skipped), batch).backward();
        const bool has_data = group.size() == 1 || step != 2 || group.rank() == 0;
        if (has_data)
          replica.backward(loss_of(replica(batch.x, skipped), batch), 1.0);
        else
          replica.backward_without_data();
        shared.step();
        all.step();
        shared.zero_grad();
        all.zero_grad();
      }
      EXPECT_FALSE(replica.backward_without_data());
      for (const Tensor& shard : replica.parameters()) EXPECT_FALSE(shard.grad().defined());
      expect_close(values_of(replica.module()), values_of(*alone), 1e-10, 1e-12);
    }
  });
}

TYPED_TEST_P(ZeroContract, GivesCapturedStepsTheBitsOfEagerOnes) {
  TypeParam::run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const auto train = [&](int stage, bool captures) {
      Replica replica = sharded(*group, stage, 1 << 8, DType::bf16);
      optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        const Tensor loss = mse_loss(replica(in[0]), in[1]);
        loss.backward();
        optim::clip_grad_norm_(replica.parameters(), 0.1, {.group = group});
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss.detach()};
      };
      StepGraph graph(step, {.group = group});
      int replays = 0;
      for (int i = 0; i < 7; ++i) {
        const Batch own = own_part(*group, i, DType::bf16);
        const std::vector<Tensor> in{own.x, own.target};
        captures ? graph(in) : step(in);
        replays += graph.replayed();
      }
      EXPECT_EQ(graph.fallback_reason(), "");
      EXPECT_EQ(replays > 0, captures);
      return values_of(replica.module());
    };
    for (const int stage : {1, 2}) EXPECT_EQ(train(stage, true), train(stage, false));
  });
}

inline bool is_under_way(const Tensor& parameter) {
  return parameter.impl().storage->gate() != nullptr;
}

/// Waits for the device too, of which a use after it need not any more.
inline void read(const Tensor& parameter) {
  (void)parameter.to_vector<double>();
  (void)parameter.data_ptr();
}

// The optimizer returns while parameters are gathered; each bucket is waited for by its first use.
TYPED_TEST_P(ZeroContract, WaitsForGathersOfWhatIsUsedAlone) {
  TypeParam::run([](Communicator& group) {
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
TYPED_TEST_P(ZeroContract, ShowsGatheredValuesToWhoeverReads) {
  TypeParam::run([](Communicator& group) {
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
TYPED_TEST_P(ZeroContract, ShowsGatheredValuesToCapturedSteps) {
  TypeParam::run([](Communicator& group) {
    Replica replica = sharded(group, 1, 1);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    StepGraph graph([&](std::span<const Tensor> in) {
      const NoGradGuard no_recording;
      return std::vector{replica.module().forward(in[0])};
    });
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

/// Whether a parameter has memory: one that was not used, or was let go again, has not.
inline bool has_memory(const Tensor& parameter) {
  return parameter.impl().storage->data() != nullptr;
}

inline int count_with_memory(const nn::Module& module) {
  int count = 0;
  for (const Tensor& parameter : module.parameters()) count += has_memory(parameter);
  return count;
}

TYPED_TEST_P(ZeroContract, HasParametersWhileModulesUseThemAlone) {
  TypeParam::run([](Communicator& group) {
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
TYPED_TEST_P(ZeroContract, BringsBackWhatBackwardsSaved) {
  TypeParam::run([](Communicator& group) {
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

TYPED_TEST_P(ZeroContract, TakesOverWhatIsWrittenToWholeParameters) {
  TypeParam::run([](Communicator& group) {
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

TYPED_TEST_P(ZeroContract, SaysWhatDoesNotGoWithParametersThatAreGathered) {
  TypeParam::run([](Communicator& group) {
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
    optimizer.step();
    optimizer.zero_grad();
    const StepGraph::Step step = [&](std::span<const Tensor> in) {
      return std::vector{replica(in[0]).detach()};
    };
    StepGraph graph(step, {.group = share(group)});
    const std::vector<Tensor> in{batch.x};
    for (int i = 0; i < 4; ++i) {
      const NoGradGuard no_recording;
      (void)graph(in);
    }
    EXPECT_THAT(graph.fallback_reason(), HasSubstr("zero_stage 3"));
  });
}

TYPED_TEST_P(ZeroContract, SaysWhatDoesNotGoWithShards) {
  TypeParam::run([](Communicator& group) {
    using ::testing::AllOf;
    using ::testing::HasSubstr;
    Replica replica = sharded(group, 1);
    EXPECT_THAT(message_of([&] { optim::Muon{replica.named_parameters()}; }),
                HasSubstr("this rank's shards"));
    EXPECT_THAT(message_of([&] { optim::LAMB{replica.named_parameters()}; }),
                HasSubstr("give the group"));
    EXPECT_THAT(message_of([&] { optim::WeightAverage{replica.named_parameters()}; }),
                HasSubstr("give it the module's parameters"));
    const std::vector<Tensor> whole = replica.module().parameters();
    EXPECT_THAT(message_of([&] { optim::AdamW{whole}; }),
                HasSubstr("give it the parameters of the DistributedDataParallel"));
    step_on(replica, own_part(group, 0));
    EXPECT_THAT(message_of([&] { optim::clip_grad_norm_(whole, 1.0, {.group = share(group)}); }),
                HasSubstr("give the parameters of the DistributedDataParallel"));
    EXPECT_THAT(message_of([&] { optim::clip_grad_norm_(replica.parameters(), 1.0); }),
                HasSubstr("give the group"));
    EXPECT_THAT(message_of([&] { step_on(replica, own_part(group, 1)); }),
                AllOf(HasSubstr("layers.0.weight"), HasSubstr("was not cleared"),
                      HasSubstr("parameters of the DistributedDataParallel")));
    for (const Tensor& shard : replica.parameters()) Tensor(shard).set_grad({});
    step_on(replica, own_part(group, 1));
    Tensor weight = replica.module().layers[0]->weight;
    weight.set_data(weight.detach().clone());
    EXPECT_THAT(message_of([&] { replica(own_part(group, 2).x); }),
                AllOf(HasSubstr("layers.0.weight"), HasSubstr("another array")));
  });
}

REGISTER_TYPED_TEST_SUITE_P(ZeroContract, UpdatesToTheBitsOfWholeStates,
                            TakesEveryOptimizerThatUpdatesElementByElement,
                            TakesNormsOfWholeParametersOverTheGroup, ClipsAndScalesOverTheGroup,
                            GathersAndSharesOutStateDicts, AccumulatesLeavesOutAndWeighs,
                            GivesCapturedStepsTheBitsOfEagerOnes, WaitsForGathersOfWhatIsUsedAlone,
                            ShowsGatheredValuesToWhoeverReads, ShowsGatheredValuesToCapturedSteps,
                            HasParametersWhileModulesUseThemAlone, BringsBackWhatBackwardsSaved,
                            TakesOverWhatIsWrittenToWholeParameters,
                            SaysWhatDoesNotGoWithParametersThatAreGathered,
                            SaysWhatDoesNotGoWithShards);

}  // namespace lockstep::parallel::testing
