// Which uses of DistributedDataParallel are allowed, and what the others are told.

#include <optional>
#include <utility>

#include <gmock/gmock.h>

#include "lockstep/autograd/grad.hpp"
#include "lockstep/optim/adam.hpp"
#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UseContract);

TEST_P(UseContract, RefusesABackwardWhoseForwardBypassedTheWrapper) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const Batch batch = Batch::of_step(0);
    const auto bypass = [&] {
      const Tensor loss = loss_of(replica.module().forward(batch.x), batch);
      EXPECT_THAT(message_of([&] { loss.backward(); }),
                  AllOf(HasSubstr("layers."), HasSubstr("call the wrapper")));
    };
    bypass();
    {
      const auto local = replica.no_sync();
      loss_of(replica(batch.x), batch).backward();
    }
    bypass();  // what was accumulated does not open the door
    loss_of(replica(batch.x), batch).backward();
    bypass();
  });
}

TEST_P(UseContract, GivesGradientsOfInputsThroughTheModuleAlone) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const Batch batch = Batch::of_step(0);
    const Tensor x = batch.x.clone().set_requires_grad();
    const Tensor direction = autograd::grad(loss_of(replica.module().forward(x), batch), {x})[0];
    EXPECT_EQ(direction.shape(), x.shape());
    const Tensor loss = loss_of(replica(x), batch);
    EXPECT_THAT(message_of([&] { autograd::grad(loss, {x}); }), HasSubstr("call its module()"));
    loss.backward();  // nothing was lost
    expect_close(direction.to_vector<double>(), x.grad().to_vector<double>(), 1e-12, 1e-14);
    const auto alone = make_net(1);
    loss_of(alone->forward(batch.x), batch).backward();
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
  });
}

TEST_P(UseContract, AllowsSeveralForwardsBeforeTheirBackwardsInNoSync) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const auto loss = [&](int step) {
      const Batch batch = Batch::of_step(step);
      return loss_of(replica(batch.x), batch);
    };
    {
      const auto local = replica.no_sync();
      const Tensor a = loss(0), b = loss(1);
      a.backward();
      b.backward();
    }
    loss(2).backward();
    const auto alone = make_net(1);
    for (int step = 0; step < 3; ++step) {
      const Batch batch = Batch::of_step(step);
      loss_of(alone->forward(batch.x), batch).backward();
    }
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
  });
}

TEST_P(UseContract, AllowsSeveralBackwardsOfOneForwardInNoSync) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const Batch batch = Batch::of_step(0);
    const auto local = replica.no_sync();
    const Tensor loss = loss_of(replica(batch.x), batch);
    loss.backward({}, true);
    loss.backward();
    const auto alone = make_net(1);
    (loss_of(alone->forward(batch.x), batch) * 2.0).backward();
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
  });
}

TEST_P(UseContract, RefusesParametersThatChangedAfterWrapping) {
  run([](Communicator& group) {
    const Batch batch = Batch::of_step(0);
    const auto expect_refusal = [&](const std::function<void(Tensor&)>& change) {
      const auto net = make_net(1);
      net->layers[3]->bias.set_requires_grad(false);
      Replica replica(net, share(group));
      change(net->layers[2]->weight);
      EXPECT_THAT(message_of([&] { replica(batch.x); }), HasSubstr("parameter layers.2.weight"));
    };
    expect_refusal([](Tensor& weight) { weight.set_requires_grad(false); });
    const auto net = make_net(1);
    net->layers[2]->weight.set_requires_grad(false);
    Replica replica(net, share(group));
    net->layers[2]->weight.set_requires_grad(true);  // nobody would reduce its gradient
    EXPECT_THAT(message_of([&] { replica(batch.x); }), HasSubstr("parameter layers.2.weight"));
  });
}

TEST_P(UseContract, RefusesAModuleWithNothingToTrain) {
  run([](Communicator& group) {
    const auto net = make_net(1);
    for (Tensor& parameter : net->parameters()) parameter.set_requires_grad(false);
    EXPECT_THAT(message_of([&] { Replica(net, share(group)); }),
                HasSubstr("requires a gradient, so there is nothing to reduce"));
  });
}

// Also while a backward of the step before has left gradients there.
TEST_P(UseContract, TrainsOnWithExchangedStorage) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const auto alone = make_net(1);
    optim::AdamW optimizer(replica.named_parameters()), reference(alone->named_parameters());
    int fired = 0;
    for (const Tensor& parameter : replica.parameters())
      autograd::leaf_of(parameter).add_hook([&](autograd::LeafNode&) { ++fired; });
    const auto exchange_all = [&] {
      for (Tensor& parameter : replica.parameters()) parameter.set_data(parameter.detach().clone());
    };
    for (int step = 0; step < 4; ++step) {
      const Batch batch = Batch::of_step(step);
      if (step == 2) exchange_all();
      loss_of(replica(batch.x), batch).backward();
      if (step == 3) exchange_all();
      optimizer.step();
      optimizer.zero_grad();
      loss_of(alone->forward(batch.x), batch).backward();
      reference.step();
      reference.zero_grad();
    }
    expect_close(values_of(replica.module()), values_of(*alone), 1e-11, 1e-13);
    EXPECT_EQ(fired, 4 * 8);
    expect_equal_replicas(group, replica.module());
  });
}

TEST_P(UseContract, RefusesParametersOfAnotherFormAfterWrapping) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    Tensor weight = replica.parameters()[4];
    const auto expect_refusal = [&](const Tensor& value) {
      EXPECT_THAT(message_of([&] { weight.set_data(value); }),
                  HasSubstr("parameter layers.2.weight was wrapped as [16, 16], f64"));
      EXPECT_EQ(weight.dtype(), DType::f64);
    };
    expect_refusal(weight.detach().to(DType::f32));
    expect_refusal(zeros({8, 16}, weight.options()));
    const Batch batch = Batch::of_step(0);
    loss_of(replica(batch.x), batch).backward();
    EXPECT_TRUE(weight.grad().defined());
  });
}

// A rank may be told at any collective, so all of the work may end in the error.
TEST_P(UseContract, NamesUnusedParametersOnEveryRank) {
  for (const bool everywhere : {true, false}) {
    if (ranks().needs_session_to_abort && !everywhere) continue;
    run([&](Communicator& group) {
      const std::vector<std::size_t> skipped(everywhere || group.rank() == 0 ? 1 : 0, 2);
      const auto train_a_step = [&] {
        Replica replica(make_net(1), share(group));
        const Batch batch = Batch::of_step(0);
        loss_of(replica(batch.x, skipped), batch).backward();
      };
      EXPECT_THAT(
          message_of(train_a_step),
          AllOf(HasSubstr("did not reach these parameters: layers.2.weight, layers.2.bias."),
                HasSubstr("find_unused_parameters")));
    });
  }
}

TEST_P(UseContract, TrainsAModuleInEvaluationMode) {
  run([](Communicator& group) {
    Replica replica(make_net(3), share(group));
    replica.module().eval();
    const Batch batch = Batch::of_step(0);
    loss_of(replica(batch.x), batch).backward();
    EXPECT_TRUE(replica.parameters()[0].grad().defined());
  });
}

// Backward of a forward that did not go through the wrapper.
std::string message_of_bypass(Replica& replica) {
  const Batch batch = Batch::of_step(0);
  const Tensor loss = loss_of(replica.module().forward(batch.x), batch);
  return message_of([&] { loss.backward(); });
}

TEST_P(UseContract, RefusesABypassAfterAForwardWithoutBackward) {
  run([](Communicator& group) {
    for (const bool local : {false, true}) {
      Replica replica(make_net(1), share(group));
      std::optional<Replica::NoSync> scope;
      if (local) scope.emplace(replica.no_sync());
      replica(Batch::of_step(0).x);
      EXPECT_THAT(message_of_bypass(replica), HasSubstr("call the wrapper"));
    }
  });
}

TEST_P(UseContract, RefusesABypassAfterALocalBackwardThatThrew) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    bool armed = true;
    autograd::leaf_of(replica.parameters()[0]).add_hook([&](autograd::LeafNode&) {
      if (std::exchange(armed, false)) throw InvalidArgument("a hook's own error");
    });
    const Batch batch = Batch::of_step(0);
    {
      const auto local = replica.no_sync();
      const Tensor loss = loss_of(replica(batch.x), batch);
      EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("own error"));
    }
    EXPECT_THAT(message_of_bypass(replica), HasSubstr("call the wrapper"));
    replica.module().zero_grad();
    loss_of(replica(batch.x), batch).backward();  // the wrapper goes on
    const auto alone = make_net(1);
    loss_of(alone->forward(batch.x), batch).backward();
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
  });
}

TEST_P(UseContract, ReducesSeveralForwardsInOneBackwardWithUnusedParameters) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group), {.find_unused_parameters = true});
    const auto alone = make_net(1);
    const Batch first = Batch::of_step(0), second = Batch::of_step(1);
    const auto total = [&](auto&& model) {
      return loss_of(model(first.x, {1}), first) + loss_of(model(second.x, {2}), second);
    };
    for (int step = 0; step < 2; ++step) {
      replica.module().zero_grad();
      total([&](const Tensor& x, const std::vector<std::size_t>& skipped) {
        return replica(x, skipped);
      }).backward();
    }
    total([&](const Tensor& x, const std::vector<std::size_t>& skipped) {
      return alone->forward(x, skipped);
    }).backward();
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
  });
}

TEST_P(UseContract, ReducesTwoForwardsWithABackwardEach) {
  run([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    const auto alone = make_net(1);
    const Batch real = Batch::of_step(0), fake = Batch::of_step(1);
    const auto train = [&](auto&& model) {
      const Tensor a = loss_of(model(real.x), real), b = loss_of(model(fake.x), fake);
      a.backward();
      b.backward();
    };
    train([&](const Tensor& x) { return replica(x); });
    train([&](const Tensor& x) { return alone->forward(x); });
    expect_close(gradients_of(replica.module()), gradients_of(*alone), 1e-11, 1e-13);
  });
}

// Two outputs in a type that the wrapper cannot look into.
struct TwoHeads : nn::Module {
  class Result {
   public:
    Result(Tensor first, Tensor second) : first_(std::move(first)), second_(std::move(second)) {}
    const Tensor& first() const { return first_; }
    const Tensor& second() const { return second_; }

   private:
    Tensor first_, second_;
  };
  nn::Child<nn::Linear> a{this, "a", 6, 3, TensorOptions{.dtype = DType::f64}};
  nn::Child<nn::Linear> b{this, "b", 6, 3, TensorOptions{.dtype = DType::f64}};
  Result forward(const Tensor& x) { return {a(x), b(x)}; }
};

TEST_P(UseContract, TakesOutputsOfAnyTypeAndLeavesSomeOut) {
  run([](Communicator& group) {
    const auto net = nn::make<TwoHeads>();
    net->to(device_of_rank);
    DistributedDataParallel<TwoHeads> replica(net, share(group), {.find_unused_parameters = true});
    const Batch batch = Batch::of_step(0);
    loss_of(replica(batch.x).first(), batch).backward();
    EXPECT_TRUE(net->a->weight.grad().defined());
    EXPECT_FALSE(net->b->weight.grad().defined());
  });
}

TEST_P(UseContract, RunsTheHooksOfTheModuleItself) {
  run([](Communicator& group) {
    const auto net = make_net(1);
    Replica replica(net, share(group));
    int calls = 0;
    net->add_call_hooks({.before = [&](nn::Module&, std::span<const Tensor>) { ++calls; },
                         .after = [&](nn::Module&, std::span<const Tensor>) { ++calls; }});
    const Batch batch = Batch::of_step(0);
    loss_of(replica(batch.x), batch).backward();
    EXPECT_EQ(calls, 2);
  });
}

TEST_P(UseContract, ReducesAParameterThatIsFrozenForTheStepOfAnotherModule) {
  run([](Communicator& group) {
    const auto net = make_net(1), alone = make_net(1);
    Replica replica(net, share(group));
    for (int step = 0; step < 2; ++step) {
      const Batch whole = Batch::of_step(step);
      net->requires_grad_(false);
      net->forward(whole.x);
      net->requires_grad_(true);
      net->zero_grad();
      alone->zero_grad();
      const Batch own = whole.part(group.rank(), group.size());
      loss_of(replica(own.x), own).backward();
      loss_of(alone->forward(whole.x), whole).backward();
      expect_close(gradients_of(*net), gradients_of(*alone), 1e-11, 1e-13);
    }
  });
}

// All gradients after each of some steps, with hooks that double them or without: a step, one that
// adds to it, one in two backwards, and one more.
std::vector<double> gradients_of_steps(Communicator& group, bool find_unused, bool hooked) {
  const auto net = make_net(1);
  if (hooked)
    for (const Tensor& parameter : net->parameters())
      parameter.register_hook([](const Tensor& gradient) { return gradient * 2.0; });
  Replica replica(net, share(group), {.find_unused_parameters = find_unused});
  std::vector<double> all;
  const auto train = [&](int step) {
    const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
    const bool skips = find_unused && (step + group.rank()) % 2 == 0;
    const Tensor prediction = replica(batch.x, std::vector<std::size_t>(skips ? 1 : 0, 1));
    (loss_of(prediction, batch) * (hooked ? 1.0 : 2.0)).backward();
  };
  const auto keep = [&] {
    const std::vector<double> now = gradients_of(*net);
    all.insert(all.end(), now.begin(), now.end());
  };
  for (int step = 0; step < 4; ++step) {
    if (step != 1) net->zero_grad();
    if (step == 2) {
      const auto local = replica.no_sync();
      train(10);
    }
    train(step);
    keep();
  }
  return all;
}

TEST_P(UseContract, AveragesWhatTensorHooksMakeOfTheGradients) {
  run([](Communicator& group) {
    for (const bool find_unused : {false, true})
      expect_close(gradients_of_steps(group, find_unused, true),
                   gradients_of_steps(group, find_unused, false), 1e-11, 1e-13);
  });
}

TEST_P(UseContract, ForgetsATensorHookThatIsRemoved) {
  run([](Communicator& group) {
    const auto net = make_net(1), alone = make_net(1);
    Replica replica(net, share(group));
    std::vector<HookHandle> hooks;
    for (const Tensor& parameter : net->parameters())
      hooks.push_back(parameter.register_hook([](const Tensor&) {}));
    for (int step = 0; step < 3; ++step) {
      const Batch whole = Batch::of_step(step), own = whole.part(group.rank(), group.size());
      net->zero_grad();
      alone->zero_grad();
      loss_of(replica(own.x), own).backward();
      loss_of(alone->forward(whole.x), whole).backward();
      expect_close(gradients_of(*net), gradients_of(*alone), 1e-11, 1e-13);
      for (HookHandle& hook : hooks) hook.remove();
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
