// What programs do with parameters that are gathered when they are used (zero_stage 3), over any
// group: they write to them, wrap them again, capture steps and call the replica in odd places.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/optim/optim.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/sharded_training.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GatheredUseContract);

// The array goes, and what was written with it, be it in the forward or after it.
TEST_P(GatheredUseContract, SaysThatWhatWasWrittenElsewhereIsLost) {
  run([](Communicator& group) {
    const auto lost = ::testing::HasSubstr("was written to while it was gathered");
    for (const std::size_t bucket : {std::size_t{1}, std::size_t{25} << 20}) {
      Replica replica = sharded(group, 3, bucket);
      const Batch batch = own_part(group, 0);
      const auto write = [&] { set_all(replica.module().layers[0]->bias, 7.0); };
      replica.module().delay = write;
      EXPECT_THAT(message_of([&] { step_on(replica, batch); }), lost);
      const auto evaluate = [&] {
        const NoGradGuard no_recording;
        (void)replica(batch.x);
      };
      EXPECT_THAT(message_of([&] {
                    evaluate();
                    evaluate();
                  }),
                  lost);
      replica.module().delay = {};
      const Tensor loss = loss_of(replica(batch.x), batch);
      Tensor last = replica.module().layers[3]->weight;  // which is there until backward
      set_all(last, 7.0);
      EXPECT_THAT(message_of([&] { loss.backward(); }), lost);
      step_on(replica, batch);
      const auto whole = replica.whole_parameters();
      EXPECT_EQ(values_of(replica.module()), values_of(*make_net(7)));
    }
  });
}

// The new wrapper takes over what the former one holds.
TEST_P(GatheredUseContract, MayBeWrappedAgainWhileParametersAreWhole) {
  run([](Communicator& group) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto net = make_net(7);
      auto former = std::make_unique<Replica>(
          net, share(group), DistributedDataParallelOptions{.bucket_bytes = 1, .zero_stage = 3});
      step_on(*former, own_part(group, 0));
      std::unique_ptr<Replica> latter;
      {
        const auto whole = former->whole_parameters();
        latter = std::make_unique<Replica>(net, share(group),
                                           DistributedDataParallelOptions{.zero_stage = stage});
      }
      Replica fresh = sharded(group, stage, std::size_t{25} << 20);
      optim::SGD of_latter(latter->named_parameters(), {.lr = 0.1}),
          of_fresh(fresh.named_parameters(), {.lr = 0.1});
      for (int step = 0; step < 3; ++step) {
        const Batch batch = own_part(group, step);
        step_on(*latter, batch);
        step_on(fresh, batch);
        EXPECT_THAT(message_of([&] { (*former)(batch.x); }),
                    ::testing::HasSubstr("was wrapped again"));
        if (step == 1) break;
        of_latter.step();
        of_fresh.step();
        of_latter.zero_grad();
        of_fresh.zero_grad();
      }
      former.reset();
      const auto whole = latter->whole_parameters(), of_other = fresh.whole_parameters();
      EXPECT_EQ(values_of(*net), values_of(fresh.module())) << "stage " << stage;
    }
  });
}

// One step of a module alone, and what it leaves.
std::vector<double> after_a_step_alone(Net& net, const Batch& batch) {
  loss_of(net.forward(batch.x), batch).backward();
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  optimizer.step();
  return values_of(net);
}

TEST_P(GatheredUseContract, LeavesParametersWholeWhereItEndsWhileTheyAreHeld) {
  run([](Communicator& group) {
    const auto net = make_net(7);
    std::optional<Replica> replica(std::in_place, net, share(group),
                                   DistributedDataParallelOptions{.zero_stage = 3});
    {
      const auto whole = replica->whole_parameters();
      set_all(net->layers[3]->bias, 0.5);
      replica.reset();
    }
    const auto other = make_net(7);
    set_all(other->layers[3]->bias, 0.5);
    EXPECT_EQ(values_of(*net), values_of(*other));
    const Batch batch = own_part(group, 0);
    EXPECT_EQ(after_a_step_alone(*net, batch), after_a_step_alone(*other, batch));
  });
}

// The former wrapper ends before the new one begins, and parameters are held for longer than both.
TEST_P(GatheredUseContract, MayBeReplacedWhileParametersAreWhole) {
  run([](Communicator& group) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto net = make_net(7);
      std::optional<Replica> replica(std::in_place, net, share(group),
                                     DistributedDataParallelOptions{.zero_stage = 3});
      {
        const auto whole = replica->whole_parameters();
        replica.emplace(net, share(group), DistributedDataParallelOptions{.zero_stage = stage});
      }
      Replica fresh = sharded(group, stage, std::size_t{25} << 20);
      for (Replica* const each : {&*replica, &fresh}) {
        step_on(*each, own_part(group, 0));
        optim::SGD(each->named_parameters(), {.lr = 0.1}).step();
      }
      const auto whole = replica->whole_parameters(), of_other = fresh.whole_parameters();
      EXPECT_EQ(values_of(*net), values_of(fresh.module())) << "stage " << stage;
    }
  });
}

// Each time that they are held, parameters lie elsewhere.
TEST_P(GatheredUseContract, LetsNoCapturedStepReadParametersWhereTheyWere) {
  run([](Communicator& group) {
    Replica replica = sharded(group, 3);
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
    StepGraph graph = captured_evaluation(replica);
    for (int step = 0; step < 6; ++step) {
      const Batch batch = own_part(group, step);
      step_on(replica, batch);
      optimizer.step();
      optimizer.zero_grad();
      const auto whole = replica.whole_parameters();
      const std::vector<Tensor> in{batch.x};
      const auto seen = graph(in)[0].template to_vector<double>();
      const NoGradGuard no_recording;
      EXPECT_EQ(seen, replica.module().forward(batch.x).template to_vector<double>());
    }
    EXPECT_THAT(graph.fallback_reason(), ::testing::HasSubstr("zero_stage 3"));
  });
}

// An op whose gradient has a hook may be using the parameters that a forward or a hold would free.
TEST_P(GatheredUseContract, LetsGoOfNothingInsideABackwardForOthers) {
  run([](Communicator& group) {
    const auto train = [&](int stage) {
      Replica replica = sharded(group, stage, 1);
      const Batch batch = own_part(group, 0);
      const Tensor loss = loss_of(replica(batch.x), batch);
      std::string message;
      replica.module().layers[2]->weight.register_hook([&](const Tensor& gradient) {
        if (stage == 3) message = message_of([&] { (void)replica.whole_parameters(); });
        const NoGradGuard no_recording;
        return gradient * replica(batch.x).sum();
      });
      loss.backward();
      EXPECT_THAT(message, ::testing::HasSubstr(stage == 3 ? "inside a backward" : ""));
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      optimizer.step();
      const auto whole = replica.whole_parameters();
      return values_of(replica.module());
    };
    expect_close(train(3), train(0), 1e-9, 1e-11);
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
