#include <string>
#include <utility>

#include "lockstep/parallel/agreement.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "parallel/bucket_planner.hpp"
#include "parallel/micro_batch_tree.hpp"
#include "runtime/step_recording.hpp"

// What a reducer does with a bucket, exchanged for something else.

namespace lockstep::parallel {

void Reducer::set_reduction(std::shared_ptr<BucketReduction> reduction) {
  refuse_in_captured_step("a communication hook is registered, which ranks compare on the host,",
                          "register it before");
  const std::pair<std::string, std::string> settings[] = {
      {"the communication hook", reduction ? reduction->name() : "none"}};
  check_same_settings(*group_, settings);
  LOCKSTEP_CHECK(reduction, InvalidArgument, "there is no communication hook to be registered");
  LOCKSTEP_CHECK(!running_, InvalidArgument, "the communication hook ", reduction->name(),
                 " was registered inside a backward that averages gradients over ranks");
  LOCKSTEP_CHECK(
      !shares_out(), InvalidArgument, "the communication hook ", reduction->name(),
      " does not go with a zero_stage, which has each rank's part of the averages summed "
      "by ",
      options_.reduction->name(), "; give zero_stage 0, or no hook");
  LOCKSTEP_CHECK(!reduction->shares_out(), InvalidArgument, "the communication hook ",
                 reduction->name(),
                 " would leave each rank a part of the averages; give a zero_stage for that");
  LOCKSTEP_CHECK(
      !reduction->is_delayed() || !options_.find_unused_parameters || options_.static_graph,
      InvalidArgument, "the communication hook ", reduction->name(),
      " would lose gradients of parameters that take no part in the next step; give "
      "static_graph in the place of find_unused_parameters, or no such hook");
  LOCKSTEP_CHECK(!tree_, InvalidArgument, "the communication hook ", reduction->name(),
                 " in the place of a reproducible reduction, which itself says how gradients are "
                 "averaged; give reduction = standard, or no hook");
  if (reduction->keeps_state()) take_for_this(*reduction);
  options_.reduction = std::move(reduction);
  for (BucketState& bucket : buckets_) bucket.parts_run = 0;
  if (planner_) planner_->forget_messages();
}

void Reducer::take_for_this(BucketReduction& reduction) const {
  const auto other = reduction.reducer_.lock();
  LOCKSTEP_CHECK(!other || *other == this || !(*other)->has_reduction(reduction), InvalidArgument,
                 "the communication hook ", reduction.name(),
                 " is that of another DistributedDataParallel, and keeps what belongs to its "
                 "parameters; give each a hook of its own");
  reduction.reducer_ = self_;
}

std::string Reducer::why_ranks_differ() const {
  if (!options_.averaging.empty())
    return detail::concat(options_.averaging,
                          " lets ranks differ between its averages: call run() behind its "
                          "synchronize(), and no step()");
  const bool is_hook = options_.reduction != all_reduce_buckets() && !shares_out();
  return is_hook ? detail::concat("The communication hook '", options_.reduction->name(),
                                  "' must leave the same gradients on all ranks")
                 : std::string();
}

/// Not of a reducer whose parameters were wrapped again.
bool Reducer::has_reduction(const BucketReduction& reduction) const {
  return taken_.empty() && options_.reduction.get() == &reduction;
}

}  // namespace lockstep::parallel
