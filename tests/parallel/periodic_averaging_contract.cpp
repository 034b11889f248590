// Replicas that train alone and are averaged every few steps, over any group.

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/averaged_alone.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PeriodicAveragingContract);

void expect_different_replicas(Communicator& group, const nn::Module& module) {
  const std::string own = std::to_string(hash_of(module));
  for (int rank = 0; const std::string& other : comm::all_gather_bytes(group, own))
    EXPECT_EQ(other == own, rank++ == group.rank());
}

TEST_P(PeriodicAveragingContract, LocalSgdAveragesWhatRanksReachAlone) {
  run([](Communicator& group) {
    AveragedAlone expected(group.size(), {}, 3);
    Replica replica(make_net(7 + static_cast<std::uint64_t>(group.rank())), share(group));
    replica.module().load_state_dict(make_net(7)->state_dict());
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
    LocalSGD averaging(replica, optimizer, {.sync_every = 3});
    for (int step = 0; step < 6; ++step) {
      train_steps(replica, optimizer, group, step, step + 1);
      expected.step(step);
      expect_close(values_of(replica.module()), values_of(expected.model(group.rank())), 1e-9,
                   1e-11);
      step % 3 == 2 ? expect_equal_replicas(group, replica.module())
                    : expect_different_replicas(group, replica.module());
    }
    EXPECT_EQ(averaging.steps(), 6);
    train_steps(replica, optimizer, group, 6, 7);
    averaging.synchronize();
    expect_equal_replicas(group, replica.module());
  });
}

TEST_P(PeriodicAveragingContract, DiLoCoStepsByWhatRanksMovedOnTheAverage) {
  run([](Communicator& group) {
    for (const DiLoCoOptions& options : {DiLoCoOptions{.sync_every = 3},
                                         {.sync_every = 2, .outer_lr = 1, .outer_momentum = 0},
                                         {.sync_every = 4, .fragments = 2},
                                         {.sync_every = 4,
                                         .fragments = 2,
                                         .fragment_sync_delay = 3,
                                         .fragment_update_alpha = 0.5}}) {
      AveragedAlone expected(group.size(), options, options.sync_every);
      Replica replica(make_net(7), share(group));
      optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
      DiLoCo averaging(replica, optimizer, options);
      for (int step = 0; step < 12; ++step) {
        train_steps(replica, optimizer, group, step, step + 1);
        expected.step(step);
        expect_close(values_of(replica.module()), values_of(expected.model(group.rank())), 1e-8,
                     1e-10);
      }
      if (options.fragments == 1) expect_equal_replicas(group, replica.module());
      averaging.synchronize();
      expect_equal_replicas(group, replica.module());
    }
  });
}

// A run's values at the end, whose first part was saved and loaded into new objects, or not.
template <class Make>
std::vector<double> train_resumed(Communicator& group, DType dtype, bool resumes,
                                  const Make& make) {
  auto replica = std::make_unique<Replica>(make_net(7, dtype), share(group));
  auto optimizer =
      std::make_unique<optim::AdamW>(replica->named_parameters(), optim::AdamWOptions{.lr = 1e-2});
  auto averaging = make(*replica, *optimizer);
  train_steps(*replica, *optimizer, group, 0, 5, dtype);
  if (resumes) {
    NamedTensors model, states;
    for (const auto& [name, value] : replica->module().state_dict())
      model.emplace_back(name, value.clone());
    for (const auto& [name, value] : optimizer->state_dict())
      states.emplace_back(name, value.clone());
    const NamedTensors own = averaging->state_dict();
    averaging.reset();
    optimizer.reset();
    replica = std::make_unique<Replica>(make_net(9, dtype), share(group));
    replica->module().load_state_dict(model);
    optimizer = std::make_unique<optim::AdamW>(replica->named_parameters());
    optimizer->load_state_dict(states);
    averaging = make(*replica, *optimizer);
    averaging->load_state_dict(own);
  } else {
    averaging->state_dict();
  }
  train_steps(*replica, *optimizer, group, 5, 11, dtype);
  averaging->synchronize();
  return values_of(replica->module());
}

TEST_P(PeriodicAveragingContract, ResumesToTheSameBits) {
  run([](Communicator& group) {
    const DiLoCoOptions streaming{
        .sync_every = 4, .fragments = 2, .fragment_sync_delay = 2, .fragment_update_alpha = 0.5};
    for (const DType dtype : {DType::f64, DType::bf16}) {
      const auto diloco = [&](Replica& replica, optim::Optimizer& optimizer) {
        return std::make_unique<DiLoCo>(replica, optimizer, streaming);
      };
      const auto local = [&](Replica& replica, optim::Optimizer& optimizer) {
        return std::make_unique<LocalSGD>(replica, optimizer, LocalSGDOptions{.sync_every = 3});
      };
      EXPECT_EQ(train_resumed(group, dtype, true, diloco),
                train_resumed(group, dtype, false, diloco));
      EXPECT_EQ(train_resumed(group, dtype, true, local),
                train_resumed(group, dtype, false, local));
    }
  });
}

TEST_P(PeriodicAveragingContract, AveragesMasterCopies) {
  run([](Communicator& group) {
    Replica replica(make_net(7, DType::bf16), share(group));
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
    LocalSGD averaging(replica, optimizer, {.sync_every = 2});
    const auto masters = [&] {
      std::vector<double> all;
      for (const auto& [name, value] : optimizer.state_dict())
        if (name.ends_with(".master")) {
          const auto values = value.template to_vector<double>();
          all.insert(all.end(), values.begin(), values.end());
        }
      return all;
    };
    train_steps(replica, optimizer, group, 0, 4, DType::bf16);
    expect_equal_replicas(group, replica.module());
    const std::vector<double> averaged = masters();
    EXPECT_NE(averaged, values_of(replica.module()));  // rounded
    const std::string own(reinterpret_cast<const char*>(averaged.data()),
                          averaged.size() * sizeof(double));
    for (const std::string& other : comm::all_gather_bytes(group, own)) EXPECT_EQ(other, own);
    optimizer.set_lr(0);  // the next step starts from them
    train_steps(replica, optimizer, group, 4, 5, DType::bf16);
    EXPECT_EQ(masters(), averaged);
  });
}

// The memory is the collective's until it is done, which may be when the job ends.
TEST_P(PeriodicAveragingContract, MayEndWithAnAverageUnderWay) {
  run([](Communicator& group) {
    for (int round = 0; round < 3; ++round) {
      Replica replica(make_net(7), share(group));
      optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
      DiLoCo averaging(replica, optimizer, {.sync_every = 4, .fragment_sync_delay = 3});
      train_steps(replica, optimizer, group, 0, 5);
    }
  });
}

// Parameters of two dtypes, one of which is frozen, and running statistics.
struct MixedNet : nn::Module {
  nn::Child<nn::BatchNorm1d> norm{this, "norm", nn::BatchNormLayerOptions{.channels = 6}};
  nn::Child<nn::Linear> narrow{this, "narrow", 6, 5, TensorOptions{.dtype = DType::f32}};
  nn::Child<nn::Linear> wide{this, "wide", 5, 3, TensorOptions{.dtype = DType::f64}};
  Tensor forward(const Tensor& x) { return wide(narrow(norm(x)).to(DType::f64)); }
};

TEST_P(PeriodicAveragingContract, AveragesAllDtypesAndRunningStatistics) {
  run([](Communicator& group) {
    const auto net = nn::make<MixedNet>();
    fill(*net, 3);
    net->to(device_of_rank);
    net->narrow->bias.set_requires_grad(false);
    const auto frozen = net->narrow->bias.to_vector<double>();
    DistributedDataParallel<MixedNet> replica(net, share(group));
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    DiLoCo averaging(replica, optimizer, {.sync_every = 2, .fragments = 2});
    for (int step = 0; step < 4; ++step) {
      const Batch batch = own_part(group, step);
      mse_loss(replica(batch.x.to(DType::f32)), batch.target).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    averaging.synchronize();
    expect_equal_replicas(group, *net);
    EXPECT_EQ(net->narrow->bias.template to_vector<double>(), frozen);
    for (const auto& [name, buffer] : net->named_buffers()) {
      const auto own = buffer.template to_vector<double>();
      const std::string bytes(reinterpret_cast<const char*>(own.data()),
                              own.size() * sizeof(double));
      for (const std::string& other : comm::all_gather_bytes(group, bytes))
        EXPECT_EQ(other, bytes) << name;
    }
  });
}

TEST_P(PeriodicAveragingContract, AccumulatesAndWeighsOnEachRank) {
  run([](Communicator& group) {
    Replica whole(make_net(7), share(group)), parts(make_net(7), share(group));
    optim::SGD of_whole(whole.named_parameters(), {.lr = 0.1}),
        of_parts(parts.named_parameters(), {.lr = 0.1});
    LocalSGD first(whole, of_whole, {.sync_every = 2}), second(parts, of_parts, {.sync_every = 2});
    for (int step = 0; step < 4; ++step) {
      const Batch batch = own_part(group, step);
      const std::int64_t rows = batch.x.size(0);
      loss_of(whole(batch.x), batch).backward();
      const Batch one{batch.x.slice(0, 0, 1), batch.target.slice(0, 0, 1)},
          rest{batch.x.slice(0, 1, rows), batch.target.slice(0, 1, rows)};
      {
        const auto local = parts.no_sync();
        parts.backward(loss_of(parts(one.x), one), 1.0);
      }
      parts.backward(loss_of(parts(rest.x), rest), static_cast<double>(rows - 1));
      for (optim::Optimizer* optimizer : {&of_whole, &of_parts}) {
        optimizer->step();
        optimizer->zero_grad();
      }
    }
    expect_close(values_of(parts.module()), values_of(whole.module()), 1e-10, 1e-12);
    expect_equal_replicas(group, parts.module());
  });
}

TEST_P(PeriodicAveragingContract, CountsStepsThatAScalerSkips) {
  run([](Communicator& group) {
    Replica replica(make_net(7, DType::f32), share(group));
    optim::AdamW optimizer(replica.named_parameters(), {.lr = 1e-2});
    amp::GradScaler scaler({.init_scale = 1024});
    DiLoCo averaging(replica, optimizer, {.sync_every = 3});
    for (int step = 0; step < 6; ++step) {
      Batch batch = own_part(group, step, DType::f32);
      if (step == 1 && group.rank() == group.size() - 1)
        batch.x = batch.x * std::numeric_limits<double>::infinity();
      scaler.scale(loss_of(replica(batch.x), batch)).backward();
      scaler.clip_and_step(optimizer, 1.0);
      scaler.update();
      optimizer.zero_grad();
    }
    expect_equal_replicas(group, replica.module());
    for (const double value : values_of(replica.module())) EXPECT_TRUE(std::isfinite(value));
    EXPECT_EQ(scaler.get_scale(), group.rank() == group.size() - 1 ? 512 : 1024);
  });
}

TEST_P(PeriodicAveragingContract, LetsCapturedStepsRunEagerly) {
  run([](Communicator& world) {
    const CommunicatorPtr group = share(world);
    const auto train = [&](bool captures) {
      Replica replica(make_net(7), group);
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      LocalSGD averaging(replica, optimizer, {.sync_every = 2});
      const StepGraph::Step step = [&](std::span<const Tensor> in) {
        const Tensor loss = mse_loss(replica(in[0]), in[1]);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss.detach()};
      };
      StepGraph graph(step, {.group = group});
      for (int i = 0; i < 6; ++i) {
        const Batch own = own_part(*group, i);
        const std::vector<Tensor> in{own.x, own.target};
        captures ? graph(in) : step(in);
      }
      EXPECT_THAT(graph.fallback_reason(),
                  ::testing::HasSubstr(captures ? "LocalSGD exchanges" : ""));
      EXPECT_EQ(averaging.steps(), 6);
      return values_of(replica.module());
    };
    EXPECT_EQ(train(true), train(false));
  });
}

TEST_P(PeriodicAveragingContract, DoesNotExchangeTheAveragesOfAWeightAverage) {
  run([](Communicator& group) {
    Replica replica(make_net(7), share(group));
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    optim::WeightAverage average(replica.module().named_parameters(), {.decay = 0.5});
    DiLoCo averaging(replica, optimizer, {.sync_every = 3});
    for (int step = 0; step < 2; ++step) {
      train_steps(replica, optimizer, group, step, step + 1);
      average.update();
    }
    const std::vector<double> before = values_of(replica.module());
    {
      const auto averaged = average.swap_in();
      EXPECT_THAT(message_of([&] { averaging.synchronize(); }),
                  ::testing::HasSubstr("DiLoCo::synchronize is to change a parameter"));
    }
    EXPECT_EQ(values_of(replica.module()), before);
    averaging.synchronize();
    expect_equal_replicas(group, replica.module());
  });
}

TEST_P(PeriodicAveragingContract, SaysWhatDoesNotGoWithIt) {
  run([](Communicator& group) {
    using ::testing::HasSubstr;
    const auto message = [&](const DistributedDataParallelOptions& options, DiLoCoOptions of_diloco,
                             const std::function<void(Replica&)>& prepare) {
      Replica replica(make_net(7), share(group), options);
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      return message_of([&] {
        prepare(replica);
        DiLoCo averaging(replica, optimizer, of_diloco);
        prepare(replica);
        LocalSGD again(replica, optimizer);
      });
    };
    const auto nothing = [](Replica&) {};
    EXPECT_THAT(message({.zero_stage = 1}, {}, nothing), HasSubstr("zero_stage of 1"));
    EXPECT_THAT(message({}, {}, nothing), HasSubstr("are averaged by DiLoCo"));
    EXPECT_THAT(message({}, {},
                        [](Replica& replica) {
                          replica.register_comm_hook(compress_buckets(DType::bf16));
                        }),
                HasSubstr("communication hook"));
    EXPECT_THAT(message({}, {.sync_every = 0}, nothing), HasSubstr("sync_every: 0"));
    EXPECT_THAT(message({}, {.sync_every = 2, .fragments = 3}, nothing), HasSubstr("fragments: 3"));
    EXPECT_THAT(message({}, {.sync_every = 2, .fragment_sync_delay = 2}, nothing),
                HasSubstr("fragment_sync_delay: 2"));
    EXPECT_THAT(message({}, {.fragment_update_alpha = 1}, nothing),
                HasSubstr("fragment_update_alpha: 1"));

    Replica replica(make_net(7), share(group));
    optim::SGD partly({replica.module().layers[0]->weight}, {.lr = 0.1});
    EXPECT_THAT(message_of([&] { LocalSGD{replica, partly}; }), HasSubstr("layers.0.bias"));
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    {
      LocalSGD averaging(replica, optimizer);
      EXPECT_THAT(message_of([&] { replica.backward_without_data(); }), HasSubstr("with LocalSGD"));
      EXPECT_THAT(message_of([&] { replica.register_comm_hook(all_reduce_buckets()); }),
                  HasSubstr("LocalSGD averages parameters"));
      EXPECT_THAT(message_of([&] { averaging.load_state_dict({}); }), HasSubstr("step: missing"));
    }
    EXPECT_THAT(message_of([&] { replica(own_part(group, 0).x); }),
                HasSubstr("its LocalSGD has ended"));
    const NoGradGuard no_grad;
    replica(own_part(group, 0).x);
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
