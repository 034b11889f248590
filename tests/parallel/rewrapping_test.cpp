#include <chrono>
#include <memory>

#include <gmock/gmock.h>

#include "lockstep/comm/thread_world.hpp"
#include "parallel/replicas.hpp"

// A module that is wrapped again while the former wrapper lives.

namespace lockstep::parallel::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

void train_a_step(Replica& replica, Communicator& group, int step = 0) {
  replica.module().zero_grad();
  const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
  loss_of(replica(batch.x), batch).backward();
}

std::vector<double> gradients_alone(int step = 0) {
  const auto alone = make_net(1);
  const Batch batch = Batch::of_step(step);
  loss_of(alone->forward(batch.x), batch).backward();
  return gradients_of(*alone);
}

/// Wraps one module twice, with the former wrapper ending at the given moment, and checks that the
/// new one averages.
template <class End>
void expect_the_new_wrapper_to_reduce(bool find_unused, End end_of_the_former) {
  const Replica::Options options{.find_unused_parameters = find_unused};
  comm::run_ranks(2,
                  [&](Communicator& group) {
                    const auto net = make_net(1);
                    auto former = std::make_unique<Replica>(net, share(group), options);
                    auto latter = std::make_unique<Replica>(net, share(group), options);
                    end_of_the_former(former, *latter, group);
                    for (int step = 0; step < 3; ++step) {
                      train_a_step(*latter, group, step);
                      expect_close(gradients_of(*net), gradients_alone(step), 1e-11, 1e-13);
                    }
                  },
                  {.timeout = 10s});
}

TEST(Rewrapping, ByAssignmentReducesThroughTheNewWrapper) {
  for (const bool find_unused : {false, true})
    expect_the_new_wrapper_to_reduce(find_unused,
                                     [](auto& former, Replica&, Communicator&) { former.reset(); });
}

TEST(Rewrapping, ReducesWhileTheFormerWrapperLivesAndAfterItEnded) {
  for (const bool find_unused : {false, true})
    expect_the_new_wrapper_to_reduce(
        find_unused, [](auto& former, Replica& latter, Communicator& group) {
          train_a_step(latter, group);
          expect_close(gradients_of(latter.module()), gradients_alone(), 1e-11, 1e-13);
          former.reset();
        });
}

TEST(Rewrapping, RefusesTheFormerWrapper) {
  comm::run_ranks(2,
                  [](Communicator& group) {
                    const auto net = make_net(1);
                    Replica former(net, share(group));
                    const Replica latter(net, share(group));
                    EXPECT_THAT(message_of([&] { train_a_step(former, group); }),
                                HasSubstr("wrapped again"));
                  },
                  {.timeout = 10s});
}

TEST(Rewrapping, KeepsTheGradientsOfTheFormerWrapper) {
  comm::run_ranks(2,
                  [](Communicator& group) {
                    const auto net = make_net(1);
                    auto former = std::make_unique<Replica>(net, share(group));
                    train_a_step(*former, group);
                    const Replica latter(net, share(group));
                    former.reset();
                    expect_close(gradients_of(*net), gradients_alone(), 1e-11, 1e-13);
                  },
                  {.timeout = 10s});
}

}  // namespace
}  // namespace lockstep::parallel::testing
