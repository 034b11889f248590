#pragma once

#include <gmock/gmock.h>

#include "ddp/replicas.hpp"

/// @file
/// Which uses of DistributedDataParallel are allowed, and what the others are told. A World has
/// `static void run(body)`: it runs the body once on each rank. One with `needs_session_to_abort`
/// has communicators whose abort reaches the other ranks through the job's Session only.

namespace lockstep::ddp::testing {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class World>
class UseContract : public ::testing::Test {};
TYPED_TEST_SUITE_P(UseContract);

// D3
TYPED_TEST_P(UseContract, RefusesABackwardWhoseForwardBypassedTheWrapper) {
  TypeParam::run([](Communicator& group) {
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

TYPED_TEST_P(UseContract, AllowsSeveralForwardsBeforeTheirBackwardsInNoSync) {
  TypeParam::run([](Communicator& group) {
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

TYPED_TEST_P(UseContract, AllowsSeveralBackwardsOfOneForwardInNoSync) {
  TypeParam::run([](Communicator& group) {
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

// D3
TYPED_TEST_P(UseContract, RefusesParametersThatChangedAfterWrapping) {
  TypeParam::run([](Communicator& group) {
    const Batch batch = Batch::of_step(0);
    const auto expect_refusal = [&](const std::function<void(Tensor&)>& change) {
      const auto net = make_net(1);
      (*net->layers)[3].bias.set_requires_grad(false);
      Replica replica(net, share(group));
      change((*net->layers)[2].weight);
      EXPECT_THAT(message_of([&] { replica(batch.x); }), HasSubstr("parameter layers.2.weight"));
    };
    expect_refusal([](Tensor& weight) { weight.set_data(zeros({16, 16}, weight.options())); });
    expect_refusal([](Tensor& weight) { weight.set_requires_grad(false); });
    const auto net = make_net(1);
    (*net->layers)[2].weight.set_requires_grad(false);
    Replica replica(net, share(group));
    (*net->layers)[2].weight.set_requires_grad(true);  // nobody would reduce its gradient
    EXPECT_THAT(message_of([&] { replica(batch.x); }), HasSubstr("parameter layers.2.weight"));
  });
}

// D4. A rank may be told at any collective, so all of the work may end in the error.
TYPED_TEST_P(UseContract, NamesUnusedParametersOnEveryRank) {
  for (const bool everywhere : {true, false}) {
    if (requires { TypeParam::needs_session_to_abort; } && !everywhere) continue;
    TypeParam::run([&](Communicator& group) {
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

TYPED_TEST_P(UseContract, TrainsAModuleInEvaluationMode) {
  TypeParam::run([](Communicator& group) {
    Replica replica(make_net(3), share(group));
    replica.module().eval();
    const Batch batch = Batch::of_step(0);
    loss_of(replica(batch.x), batch).backward();
    EXPECT_TRUE(replica.parameters()[0].grad().defined());
  });
}

REGISTER_TYPED_TEST_SUITE_P(UseContract, RefusesABackwardWhoseForwardBypassedTheWrapper,
                            AllowsSeveralForwardsBeforeTheirBackwardsInNoSync,
                            AllowsSeveralBackwardsOfOneForwardInNoSync,
                            RefusesParametersThatChangedAfterWrapping,
                            NamesUnusedParametersOnEveryRank, TrainsAModuleInEvaluationMode);

}  // namespace lockstep::ddp::testing
