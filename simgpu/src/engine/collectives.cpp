#include <algorithm>

#include "engine/scheduler.hpp"

/// @file
/// Tasks that wait for other processes. Such a task holds up the tasks that would virtually start
/// later, so that their order stays that of the seed; but not for long, for what its peers wait for
/// may be among them.

namespace simgpu {
namespace {

// Other collectives, and what they wait for, may overtake after this; the rest after that.
constexpr auto short_wait = std::chrono::milliseconds(1);
constexpr auto long_wait = std::chrono::milliseconds(50);

}  // namespace

void Scheduler::demand_collectives() {
  for (const TaskPtr& task : collectives_) demand(task);
  collectives_.clear();
}

std::vector<TaskPtr> Scheduler::waiting_for_peers() const {
  std::vector<TaskPtr> waiting;
  for (const Queue& queue : queues_)
    if (!queue.waiting.empty() && queue.waiting.front()->waiting_since)
      waiting.push_back(queue.waiting.front());
  return waiting;
}

bool Scheduler::may_overtake(const Task& task, const Task& waiting) const {
  if (task.precedes(waiting)) return true;
  const auto waited = Clock::now() - *waiting.waiting_since;
  return waited > long_wait || (waited > short_wait && (task.demanded || task.meets_peers));
}

bool Scheduler::poll_collectives(Lock& lock) {
  bool progress = false;
  for (const TaskPtr& task : waiting_for_peers()) {
    execute(task, lock);
    progress |= task->done;
    if (!task->done && task->last_try - *task->waiting_since > short_wait) demand_collectives();
  }
  return progress;
}

}  // namespace simgpu
