#include "lockstep/optim/lr_scheduler.hpp"

#include <utility>

#include "runtime/step_recording.hpp"

namespace lockstep::optim {

LRScheduler::LRScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  for (std::size_t group = 0; group < optimizer.group_count(); ++group)
    base_.push_back(optimizer.base_lr(group));
  set_steps(0);
}

void LRScheduler::step() {
  StepRecording* const recording = StepRecording::current();
  if (!recording) return set_steps(steps_ + 1);
  recording->before_launch([this] { set_steps(steps_ + 1); });
  if (recording->has_met(&optimizer_)) recording->meets(&optimizer_.base_lr_);
}

void LRScheduler::set_steps(std::int64_t steps) {
  LOCKSTEP_CHECK(steps >= 0, InvalidArgument, "a schedule has no step ", steps);
  for (std::size_t group = 0; group < base_.size(); ++group)
    optimizer_.schedule_lr(schedule_(base_[group], steps), group);
  steps_ = steps;
}

}  // namespace lockstep::optim
