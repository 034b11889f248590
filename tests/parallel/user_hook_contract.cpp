// Hooks that the user puts on parameters of a wrapped module.

#include <chrono>
#include <thread>

#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UserHookContract);

// Makes each rank's gradients the rank's number, and takes its time.
void add_hooks(const nn::Module& module, int rank) {
  for (const Tensor& parameter : module.parameters())
    autograd::leaf_of(parameter).add_hook([rank](autograd::LeafNode& leaf) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      Tensor(leaf.gradient()).fill_(rank);
    });
}

double mean_rank(const Communicator& group) { return (group.size() - 1) / 2.0; }

void expect_gradients(const nn::Module& module, double expected) {
  for (const double value : gradients_of(module)) ASSERT_NEAR(value, expected, 1e-12);
}

TEST_P(UserHookContract, RunsBeforeTheBucketLeavesWheneverItWasAdded) {
  run([](Communicator& group) {
    for (const bool before_wrapping : {true, false}) {
      const auto net = make_net(1);
      if (before_wrapping) add_hooks(*net, group.rank());
      Replica replica(net, share(group), {.bucket_bytes = 1, .first_bucket_bytes = 1});
      if (!before_wrapping) add_hooks(*net, group.rank());
      const Batch batch = Batch::of_step(0);
      loss_of(replica(batch.x), batch).backward();
      expect_gradients(*net, mean_rank(group));
    }
  });
}

TEST_P(UserHookContract, MayReplaceTheGradientOrClearIt) {
  run([](Communicator& group) {
    const auto net = make_net(1);
    Replica replica(net, share(group), {.bucket_bytes = 1, .first_bucket_bytes = 1});
    for (const Tensor& parameter : net->parameters())
      autograd::leaf_of(parameter).add_hook([&](autograd::LeafNode& leaf) {
        if (group.rank() == 0) return leaf.clear_gradient();
        const Tensor present = leaf.gradient();
        leaf.set_gradient(full(present.shape(), 3.0, present.options()));
      });
    const Batch batch = Batch::of_step(0);
    loss_of(replica(batch.x), batch).backward();
    expect_gradients(*net, 3.0 * (group.size() - 1) / group.size());
  });
}

TEST_P(UserHookContract, OfATensorChangesWhatItsRankAdds) {
  run([](Communicator& group) {
    for (const bool before_wrapping : {true, false}) {
      const auto net = make_net(1);
      const auto add = [&] {
        for (const Tensor& parameter : net->parameters())
          parameter.register_hook([rank = group.rank()](const Tensor& gradient) {
            return full(gradient.shape(), rank, gradient.options());
          });
      };
      if (before_wrapping) add();
      Replica replica(net, share(group), {.bucket_bytes = 1, .first_bucket_bytes = 1});
      if (!before_wrapping) add();
      for (int step = 0; step < 2; ++step) {
        for (const Tensor& parameter : net->parameters()) Tensor(parameter).set_grad({});
        const Batch batch = Batch::of_step(step);
        loss_of(replica(batch.x), batch).backward();
        expect_gradients(*net, mean_rank(group));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
