// Ranks that share out optimizer states and gradients, over any group.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"
#include "parallel/sharded_training.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ZeroContract);

// Values after some steps, the last of which has another learning rate.
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

/// By what the order of a sum may change, in each dtype, once an optimizer has divided by it.
double summation_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-10;
    case DType::f32: return 1e-5;
    default: return 1e-2;
  }
}

// Bit for bit, where sums do not depend on how they are cut.
void expect_values_of_whole_states(Communicator& group, DType dtype,
                                   const std::vector<double>& shared,
                                   const std::vector<double>& whole) {
  if (group.backend() != "nccl" || group.size() <= 2)
    EXPECT_EQ(shared, whole);
  else
    expect_close(shared, whole, summation_tolerance(dtype), summation_tolerance(dtype));
}

template <class Make>
void expect_steps_of_whole_states(Communicator& group, DType dtype, const Make& make) {
  for (const std::size_t bucket : {std::size_t{1}, std::size_t{1} << 10, std::size_t{25} << 20}) {
    const auto whole = train_sharded(group, 0, bucket, dtype, make);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message()
                   << "stage " << stage << ", buckets of " << bucket << " bytes, " << dtype);
      expect_values_of_whole_states(group, dtype, train_sharded(group, stage, bucket, dtype, make),
                                    whole);
    }
  }
}

// Values after some steps of a GPT whose residuals and GELU are parts of products, unless
// `looks_on`: a hook then sees what the layers between give.
std::vector<double> train_gpt(Communicator& group, int stage, DType dtype, bool looks_on) {
  const auto model = models::gpt2({.layers = 1,
                                   .heads = 2,
                                   .channels = 32,
                                   .context = 8,
                                   .vocabulary = 48,
                                   .tensor = {.dtype = dtype}});
  fill(*model, 5);
  model->to(device_of_rank);
  int seen = 0;
  for (const auto& [name, module] : model->named_modules())
    if (looks_on && (name.ends_with(".attn") || name.ends_with(".c_fc")))
      module->add_call_hooks({.after = [&](nn::Module&, auto) { ++seen; }});
  DistributedDataParallel<models::Gpt2> replica(
      model, share(group),
      {.bucket_bytes = 1 << 13, .first_bucket_bytes = 1 << 13, .zero_stage = stage});
  optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-3});
  Generator generator(static_cast<std::uint64_t>(group.rank()));
  for (int step = 0; step < 2; ++step) {
    const Tensor tokens = randint(0, 48, {2, 9}, {DType::i64}, generator).to(device_of_rank);
    replica(tokens.slice(1, 0, 8), tokens.slice(1, 1, 9)).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_EQ(seen, looks_on ? 2 * 2 : 0);  // two layers in each step
  const auto all = replica.whole_parameters();
  return values_of(*model);
}

template <class O>
auto made(typename O::Options options) {
  return [options](const NamedTensors& parameters, bool) {
    return std::make_unique<O>(parameters, options);
  };
}

TEST_P(ZeroContract, UpdatesToTheBitsOfWholeStates) {
  run([](Communicator& group) {
    const auto decaying = [](const NamedTensors& parameters, bool) {
      return std::make_unique<optim::AdamW>(
          optim::decay_groups(parameters, optim::AdamWOptions{.lr = 1e-2, .weight_decay = 0.3}));
    };
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
      expect_steps_of_whole_states(group, dtype, decaying);
  });
}

// What lets go of parameters at layers does not keep layers from being fused.
TEST_P(ZeroContract, TrainsLayersThatAreFusedToTheBitsOfWholeStates) {
  run([](Communicator& group) {
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool looks_on : {false, true}) {
        if (looks_on && dtype != DType::f32)
          continue;  // many small exchanges: they take their time
        const auto whole = train_gpt(group, 0, dtype, looks_on);
        for (const int stage : {1, 2, 3}) {
          SCOPED_TRACE(::testing::Message()
                       << "stage " << stage << (looks_on ? ", with hooks, " : ", ") << dtype);
          expect_values_of_whole_states(group, dtype, train_gpt(group, stage, dtype, looks_on),
                                        whole);
        }
      }
  });
}

TEST_P(ZeroContract, TakesEveryOptimizerThatUpdatesElementByElement) {
  run([](Communicator& group) {
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

TEST_P(ZeroContract, TakesNormsOfWholeParametersOverTheGroup) {
  run([](Communicator& group) {
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

TEST_P(ZeroContract, ClipsAndScalesOverTheGroup) {
  run([](Communicator& group) {
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
TEST_P(ZeroContract, GathersAndSharesOutStateDicts) {
  run([](Communicator& group) {
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

// A layer whose result is scaled by a parameter without dimensions.
struct Scaled : nn::Module {
  nn::Child<nn::Linear> layer{this, "layer", 6, 3, TensorOptions{.dtype = DType::f64}};
  Tensor scale = register_parameter("scale", ones({}, {.dtype = DType::f64}));
  Tensor forward(const Tensor& x) { return layer(x) * scale; }
};

// A number of the whole parameter has the shape of one without dimensions, but is no part of it.
TEST_P(ZeroContract, SharesOutStatesOfScalars) {
  run([](Communicator& group) {
    const auto train = [&](int stage) {
      const auto net = nn::make<Scaled>();
      fill(*net, 3);
      net->to(device_of_rank);
      DistributedDataParallel<Scaled> replica(net, share(group), {.zero_stage = stage});
      const optim::NAdamOptions options{.lr = 1e-2};
      auto optimizer = std::make_unique<optim::NAdam>(replica.named_parameters(), options);
      for (int step = 0; step < 3; ++step) {
        const Batch batch = own_part(group, step);
        loss_of(replica(batch.x), batch).backward();
        optimizer->step();
        optimizer->zero_grad();
        const NamedTensors state =
            replica.shard_optimizer_state(replica.gather_optimizer_state(optimizer->state_dict()));
        optimizer = std::make_unique<optim::NAdam>(replica.named_parameters(), options);
        optimizer->load_state_dict(state);
      }
      const auto all = replica.whole_parameters();
      return values_of(*net);
    };
    for (const int stage : {1, 2, 3}) expect_close(train(stage), train(0), 1e-9, 1e-11);
  });
}

TEST_P(ZeroContract, AccumulatesLeavesOutAndWeighs) {
  run([](Communicator& group) {
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

TEST_P(ZeroContract, GivesCapturedStepsTheBitsOfEagerOnes) {
  run([](Communicator& world) {
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
      captures = captures && ranks().captures_collectives;
      if (captures) {
        EXPECT_EQ(graph.fallback_reason(), "");
      }
      EXPECT_EQ(replays > 0, captures);
      return values_of(replica.module());
    };
    for (const int stage : {1, 2}) EXPECT_EQ(train(stage, true), train(stage, false));
  });
}

// Values after steps through a StepGraph that knows no group, or eager ones.
std::vector<double> train_where_a_capture_is_refused(Communicator& group, int stage, bool captures,
                                                     bool reads_in_backward) {
  Replica replica = sharded(group, stage, 1 << 8);
  optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
  if (reads_in_backward)
    autograd::leaf_of(replica.module().layers[1]->weight).add_hook([](autograd::LeafNode& leaf) {
      static_cast<void>(leaf.gradient().sum().item());
    });
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    const Tensor loss = mse_loss(replica(in[0]), in[1]);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss.detach()};
  };
  StepGraph graph(step);
  for (int i = 0; i < 8; ++i) {
    const Batch own = own_part(group, i);
    const std::vector<Tensor> in{own.x, own.target};
    captures ? graph(in) : step(in);
  }
  EXPECT_FALSE(reads_in_backward && graph.replayed());
  return values_of(replica.module());
}

// What is refused in the midst of a backward leaves buckets that nobody has written: the eager
// steps behind it begin anew. The simulated GPU reports whoever writes to memory of the capture.
TEST_P(ZeroContract, GoesOnWhereACaptureIsRefusedWithinBackward) {
  run([](Communicator& group) {
    for (const int stage : {0, 1, 2})
      for (const bool reads : {false, true})
        EXPECT_EQ(train_where_a_capture_is_refused(group, stage, true, reads),
                  train_where_a_capture_is_refused(group, stage, false, reads))
            << "stage " << stage << (reads ? ", a hook that reads a value" : "");
  });
}

// In buckets that come and go with each step; `clears`: without their gradients.
std::vector<double> train_behind_buckets(const CommunicatorPtr& group, bool capture, bool clears) {
  Replica replica(make_net(1), group, {.bucket_bytes = 1 << 9, .zero_stage = 2});
  optim::SGD optimizer(replica.named_parameters(), {.lr = 0.05});
  const StepGraph::Step step = [&](std::span<const Tensor> in) {
    replica(in[0]).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector<Tensor>{};
  };
  StepGraph graph(step, {.group = group});
  for (int i = 0; i < 18; ++i) {
    if (i > 3 && i % 3 > 0) {
      const auto local = replica.no_sync();
      replica(values({3, 6}, i)).mean().backward();
    }
    if (clears) optimizer.zero_grad();
    const Tensor x = values({3 + (i > 5 ? i % 3 : 0), 6}, i + group->rank());
    capture ? graph({x}) : step(std::array{x});
  }
  const auto whole = replica.whole_parameters();
  return values_of(replica.module());
}

TEST_P(ZeroContract, CapturesNoBucketsThatBackwardsOutsideHaveMade) {
  run([](Communicator& world) {
    for (const bool clears : {false, true})
      EXPECT_EQ(train_behind_buckets(share(world), true, clears),
                train_behind_buckets(share(world), false, clears));
  });
}

TEST_P(ZeroContract, SaysWhatDoesNotGoWithShards) {
  run([](Communicator& group) {
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
    EXPECT_THAT(message_of([&] { optim::clip_grad_value_(whole, 1.0); }),
                HasSubstr("give the parameters of the DistributedDataParallel"));
    EXPECT_THAT(message_of([&] { optim::clip_grad_norm_(replica.parameters(), 1.0); }),
                HasSubstr("give the group"));
    EXPECT_THAT(message_of([&] { step_on(replica, own_part(group, 1)); }),
                AllOf(HasSubstr("layers.0.weight"), HasSubstr("was not cleared"),
                      HasSubstr("set_to_none = true"),
                      HasSubstr("parameters of the DistributedDataParallel")));
    for (const Tensor& shard : replica.parameters()) Tensor(shard).set_grad({});
    step_on(replica, own_part(group, 1));
    Tensor weight = replica.module().layers[0]->weight;
    weight.set_data(weight.detach().clone());
    EXPECT_THAT(message_of([&] { replica(own_part(group, 2).x); }),
                AllOf(HasSubstr("layers.0.weight"), HasSubstr("another array")));
  });
}

TEST_P(ZeroContract, RefusesUpdatesOfShardsWhoseWrapperHasEnded) {
  run([](Communicator& group) {
    for (const int stage : {1, 2, 3}) {
      std::optional<optim::SGD> optimizer;
      {
        Replica replica = sharded(group, stage);
        optimizer.emplace(replica.named_parameters(), optim::SGDOptions{.lr = 0.1});
        step_on(replica, own_part(group, 0));
        optimizer->step();
      }
      EXPECT_THAT(message_of([&] { optimizer->step(); }), ::testing::HasSubstr("that has ended"));
      optimizer->zero_grad();
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
