#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"

/// @file
/// Drives an optimizer's learning rates along a schedule.

namespace lockstep::optim {

/// Sets the learning rate of every group from a schedule, the same for all or one each. Base rates
/// are those that the groups were last given by their options, `set_lr` or a load
/// (`Optimizer::base_lr`), also where the optimizer was loaded in the midst of another schedule:
///
///     optim::LRScheduler scheduler(optimizer, optim::SequentialLR{
///         {optim::LinearLR{.iterations = 100}, optim::CosineAnnealingLR{.iterations = 900}},
///         {100}});
///     ... optimizer.step(); scheduler.step();
class LRScheduler {
 public:
  /// Sets the rates of step 0.
  /// @param optimizer must outlive the scheduler.
  LRScheduler(Optimizer& optimizer, const Schedule& schedule);
  /// The same with a schedule for each group, in their order: `{warm_up, {}}` leaves the second at
  /// its base rate. @throws InvalidArgument for another number of schedules than of groups.
  LRScheduler(Optimizer& optimizer, std::vector<Schedule> schedules);

  /// Moves on by one step. Warns where the optimizer was loaded with other rates, and the scheduler
  /// was not told of the steps that these come from: the schedule begins anew.
  void step();
  /// Steps taken: all that a checkpoint must keep.
  std::int64_t steps() const noexcept { return steps_; }
  /// Goes to a number of steps. @throws InvalidArgument for a negative one.
  void set_steps(std::int64_t steps);

 private:
  void tell_of_other_rates();

  Optimizer& optimizer_;
  std::vector<Schedule> schedules_;  // of each group
  std::int64_t steps_ = 0;
  std::uint64_t loads_ = 0;  // of the optimizer, when its rates were last set
};

}  // namespace lockstep::optim
