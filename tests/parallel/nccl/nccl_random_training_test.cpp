// Random models, trained in random ways by ranks with a GPU each: equal to one process.

#include <cstdlib>

#include "parallel/gpu_groups.hpp"
#include "parallel/random_training.hpp"

namespace lockstep::parallel::testing {
namespace {

// LOCKSTEP_RANDOM_TRAININGS=200 tries more of them.
TEST(RandomTrainingOnGpus, EqualsOneProcess) {
  const char* const asked = std::getenv("LOCKSTEP_RANDOM_TRAININGS");
  const std::uint64_t count = asked ? std::stoull(asked) : 8;
  run_over_nccl([&](Communicator& group) {
    for (std::uint64_t seed = 1; seed <= count; ++seed) {
      const Plan plan(seed, group.size());
      const auto [relative, absolute] = plan.tolerance();
      expect_close(train_on(group, plan), train_alone(plan), relative, absolute);
      ASSERT_FALSE(::testing::Test::HasFailure()) << plan;
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
