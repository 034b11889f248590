#include "lockstep/optim/lr_scheduler.hpp"

#include <utility>

#include "lockstep/observe/log.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::optim {

LRScheduler::LRScheduler(Optimizer& optimizer, const Schedule& schedule)
    : LRScheduler(optimizer, std::vector<Schedule>(optimizer.group_count(), schedule)) {}

LRScheduler::LRScheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
    : optimizer_(optimizer), schedules_(std::move(schedules)) {
  LOCKSTEP_CHECK(schedules_.size() == optimizer.group_count(), InvalidArgument,
                 "LRScheduler: ", schedules_.size(), " schedules for an optimizer with ",
                 optimizer.group_count(), " parameter groups; give one for each, or one for all");
  set_steps(0);
}

void LRScheduler::tell_of_other_rates() {
  if (steps_ > 0 || std::exchange(loads_, optimizer_.loads_) == optimizer_.loads_) return;
  for (std::size_t group = 0; group < schedules_.size(); ++group) {
    if (!schedules_[group]) continue;
    const double loaded = optimizer_.lr(group),
                 first = schedules_[group](optimizer_.base_lr(group), 0);
    if (loaded == first) continue;
    LOCKSTEP_LOG(
        warning, "the optimizer was loaded with the learning rate ", loaded,
        ", and its LRScheduler begins anew, with ", first,
        ": keep the scheduler's steps in checkpoints, too (add(\"scheduler\", scheduler)), "
        "or call its set_steps()");
    return;
  }
}

void LRScheduler::step() {
  tell_of_other_rates();
  StepRecording* const recording = StepRecording::current();
  if (!recording) return set_steps(steps_ + 1);
  recording->before_launch([this] { set_steps(steps_ + 1); }, [this] { set_steps(steps_ - 1); });
  if (recording->has_met(&optimizer_)) recording->meets(&optimizer_.base_lr_);
}

void LRScheduler::set_steps(std::int64_t steps) {
  LOCKSTEP_CHECK(steps >= 0, InvalidArgument, "a schedule has no step ", steps);
  std::vector<double> rates;
  for (std::size_t group = 0; group < schedules_.size(); ++group) {
    const double base = optimizer_.base_lr(group);
    rates.push_back(schedules_[group] ? schedules_[group](base, steps) : base);
  }
  for (std::size_t group = 0; group < rates.size(); ++group)
    optimizer_.schedule_lr(rates[group], group);
  steps_ = steps;
  loads_ = optimizer_.loads_;
}

}  // namespace lockstep::optim
