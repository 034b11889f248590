// A module that is wrapped again while the former wrapper lives.

#include <memory>

#include <gmock/gmock.h>

#include "parallel/contracts.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RewrappingContract);

void train_a_step(Replica& replica, const Communicator& group, int step = 0) {
  replica.module().zero_grad();
  const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
  loss_of(replica(batch.x), batch).backward();
}

void expect_averages(const nn::Module& module, int step = 0) {
  const auto alone = make_net(1);
  const Batch batch = Batch::of_step(step);
  loss_of(alone->forward(batch.x), batch).backward();
  expect_close(gradients_of(module), gradients_of(*alone), 1e-11, 1e-13);
}

// Wraps one module twice, with the former wrapper ending at once or after a step of the new one,
// which must average.
void expect_the_new_wrapper_to_reduce(Communicator& group, const Replica::Options& options,
                                      bool former_ends_at_once) {
  const auto net = make_net(1);
  auto former = std::make_unique<Replica>(net, share(group), options);
  Replica latter(net, share(group), options);
  if (former_ends_at_once) former.reset();
  for (int step = 0; step < 3; ++step) {
    train_a_step(latter, group, step);
    expect_averages(*net, step);
    former.reset();
  }
}

TEST_P(RewrappingContract, ReducesThroughTheNewWrapperWheneverTheFormerEnds) {
  run([](Communicator& group) {
    for (const bool find_unused : {false, true})
      for (const bool former_ends_at_once : {true, false})
        expect_the_new_wrapper_to_reduce(group, {.find_unused_parameters = find_unused},
                                         former_ends_at_once);
  });
}

TEST_P(RewrappingContract, RefusesTheFormerWrapper) {
  run([](Communicator& group) {
    const auto net = make_net(1);
    Replica former(net, share(group));
    const Replica latter(net, share(group));
    EXPECT_THAT(message_of([&] { train_a_step(former, group); }),
                ::testing::HasSubstr("wrapped again"));
  });
}

TEST_P(RewrappingContract, KeepsTheGradientsOfTheFormerWrapper) {
  run([](Communicator& group) {
    const auto net = make_net(1);
    auto former = std::make_unique<Replica>(net, share(group));
    train_a_step(*former, group);
    const Replica latter(net, share(group));
    former.reset();
    expect_averages(*net);
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
