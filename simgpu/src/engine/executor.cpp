#include <algorithm>

#include "engine/scheduler.hpp"

/// @file
/// The thread that runs the tasks.

namespace simgpu {
namespace {

constexpr auto silence = std::chrono::milliseconds(5);
constexpr auto shortest_nap = std::chrono::microseconds(20);
constexpr auto usual_nap = std::chrono::microseconds(500);
constexpr auto longest_nap = std::chrono::milliseconds(1);   // behind a peer
constexpr auto longest_work = std::chrono::milliseconds(1);  // without a pause

}  // namespace

bool Scheduler::is_allowed(const Task& task) const {
  if (task.demanded || order_ == Order::early) return true;
  return order_ == Order::random && (task.start < now_ || task.start <= horizon_);
}

bool Scheduler::is_ready(const Task& task) {
  return std::all_of(task.after.begin(), task.after.end(),
                     [](const TaskPtr& other) { return other->done; });
}

TaskPtr Scheduler::next_task() const {
  const std::vector<TaskPtr> held_up = waiting_for_peers();
  TaskPtr best;
  for (const Queue& queue : queues_) {
    if (queue.waiting.empty()) continue;
    const TaskPtr& head = queue.waiting.front();
    if (head->is_stalled || head->waiting_since || !is_allowed(*head) || !is_ready(*head)) continue;
    if (best != nullptr && best->precedes(*head)) continue;
    if (std::all_of(held_up.begin(), held_up.end(),
                    [&](const TaskPtr& waiting) { return may_overtake(*head, *waiting); }))
      best = head;
  }
  return best;
}

void Scheduler::finish(const TaskPtr& task) {
  task->done = true;
  task->after.clear();
  Queue& queue = *task->queue;
  if (task->waiting_since) queue.waited += Clock::now() - *task->waiting_since;
  task->waited = queue.waited;
  queue.waiting.pop_front();
  ++finished_;
  if (queue.retired && queue.waiting.empty()) retire(queue);
  if (task->is_awaited || is_drained_) done_.notify_all();
}

void Scheduler::execute(const TaskPtr& task, Lock& lock) {
  if (!task->run) return finish(task);
  // What meets others, a function of the host too, tells them that what came before is done.
  const Clock::time_point begin = Clock::now();
  if (task->meets_peers || task->queue != last_queue_ || begin - last_pause_ > longest_work)
    pause();
  last_queue_ = task->queue;
  is_running_ = !task->meets_peers;
  lock.unlock();
  observer_.begin_task(*task);
  const bool finished = task->run();
  if (finished) {
    observer_.end_task(*task);
    task->run = nullptr;  // what it holds may need the mutex to go away
  }
  lock.lock();
  is_running_ = false;
  if (finished) return finish(task);
  task->last_try = Clock::now();
  if (task->waiting_since) return;
  task->waiting_since = task->last_try;
  done_.notify_all();  // who asks for what it holds up
}

void Scheduler::run_executor() {
  observer_.begin_thread();
  Lock lock(mutex_);
  while (!stopping_) {
    if (!collectives_.empty() && Clock::now() - last_call_ > silence) demand_collectives();
    const bool progress = poll_collectives(lock);
    if (const TaskPtr task = next_task())
      execute(task, lock);
    else if (!progress)
      sleep(lock);
  }
  pause();
}

void Scheduler::pause() {
  last_pause_ = Clock::now();
  observer_.pause();
}

// The host does not wake the executor with each call, which would cost more than the call: nobody
// sees when a task really runs before waiting for it, which does wake the executor.
void Scheduler::sleep(Lock& lock) {
  if (stopping_) return;
  pause();
  const bool has_work = std::any_of(queues_.begin(), queues_.end(), [](const Queue& queue) {
    return !queue.waiting.empty() && !queue.waiting.front()->is_stalled;
  });
  if (!has_work) {
    is_idle_ = true;
    work_.wait(lock, [this] { return !is_idle_ || stopping_; });
    return;
  }
  const std::vector<TaskPtr> held_up = waiting_for_peers();
  Clock::duration nap = held_up.empty() ? Clock::duration(usual_nap) : Clock::duration(longest_nap);
  for (const TaskPtr& task : held_up)
    nap = std::min<Clock::duration>(
        nap, std::max<Clock::duration>(shortest_nap, (Clock::now() - *task->waiting_since) / 8));
  work_.wait_for(lock, order_ == Order::late && nap >= usual_nap ? silence : nap);
}

}  // namespace simgpu
