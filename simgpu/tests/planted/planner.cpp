#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/switch.hpp"
#include "planted/training.hpp"

/// @file
/// The measured plan of buckets, which ranks must make at the same time and alike: see
/// planted.cmake.

namespace planted {
namespace {

using namespace lockstep;

// The first step shows the order of the gradients, two are measured, the fourth has the plan.
void train_by_measured_plan(const CommunicatorPtr& group) {
  Training training(group, {.bucket_plan = parallel::BucketPlanning::measured});
  for (int step = 0; step < 4; ++step) training.step();
  synchronize(current_stream(group->device()));
}

}  // namespace

// BucketPlanner::share leaves each rank with a solution of its own: two buckets on rank 0, one on
// the others.
void plans_differ() {
  is_planted("plans-differ") ? run_disagreeing_ranks(train_by_measured_plan)
                             : run_ranks(2, train_by_measured_plan);
}

// Rank 0 exchanges what it has measured a step too early, while the others measure one more.
void plan_before_all_measured() {
  is_planted("plan-before-all-measured") ? run_disagreeing_ranks(train_by_measured_plan)
                                         : run_ranks(2, train_by_measured_plan);
}

// The plan that all ranks go by has a bucket that ends past the last parameter.
void bucket_past_the_end() { run_ranks(2, train_by_measured_plan); }

}  // namespace planted
