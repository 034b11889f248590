#include "comm/host/host_work.hpp"

#include <sched.h>

#include "runtime/step_recording.hpp"

namespace lockstep::comm::host {

HostWork::~HostWork() {
  if (failure_) failure_->keep_unless_told();
}

void HostWork::finish(std::optional<Failure> failure) {
  times_.finished = WorkTimes::Clock::now();
  failure_ = std::move(failure);
  done_.store(true, std::memory_order_release);
  done_.notify_all();
}

void HostWork::wait() {
  refuse_in_captured_step("a collective from before it is waited for", "wait before the step");
  if (runner_ && claim())
    runner_->run_claimed(*this);
  else
    wait_for_its_thread();
  if (failure_) failure_->raise();
}

// Small collectives end within microseconds: a few yields are cheaper than a sleep, and leave the
// core to the progress thread where it shares ours.
void HostWork::wait_for_its_thread() const {
  constexpr int yields_before_sleep = 20;
  for (int i = 0; i < yields_before_sleep && !is_completed(); ++i) sched_yield();
  done_.wait(false, std::memory_order_acquire);
}

std::exception_ptr HostWork::exception() const {
  return is_completed() && failure_ ? failure_->as_exception() : nullptr;
}

std::optional<WorkTimes> HostWork::times() const {
  if (!is_completed() || failure_) return std::nullopt;
  return times_;
}

}  // namespace lockstep::comm::host
