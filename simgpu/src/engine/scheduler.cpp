#include "engine/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

namespace simgpu {
namespace {

// A real launch waits when so many are queued.
constexpr std::size_t queue_limit = 1024;
// In the late order, asking so often counts as waiting.
constexpr unsigned queries_before_wait = 16;

std::uint64_t mix(std::uint64_t x) {  // SplitMix64 (Steele, Lea and Flood 2014)
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

Scheduler::Scheduler(std::mutex& mutex, Order order, std::uint64_t seed,
                     SchedulerObserver& observer)
    : mutex_(mutex), order_(order), seed_(seed), observer_(observer) {
  executor_ = std::thread([this] { run_executor(); });
}

Scheduler::~Scheduler() { stop(); }

void Scheduler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    work_.notify_all();
    done_.notify_all();
  }
  if (executor_.joinable()) executor_.join();
}

Queue& Scheduler::add_queue(int device, unsigned number, Component component, std::string name) {
  return queues_.emplace_back(device, number, component, std::move(name));
}

void Scheduler::retire(Queue& queue) {
  queue.retired = true;
  if (queue.waiting.empty()) queues_.remove_if([&](const Queue& each) { return &each == &queue; });
}

void Scheduler::tick() {
  ++now_;
  last_call_ = Clock::now();
}

// Short and long ones, so that streams overtake each other in every way; many take no time at all.
VirtualTime Scheduler::duration(const Queue& queue) const {
  if (order_ == Order::early) return 0;
  const std::uint64_t bits = mix(seed_ ^ mix(queue.number + (queue.queued << 20)));
  if ((bits & 3) == 0) return 0;
  const double exponent = static_cast<double>(bits >> 11) * 0x1p-53 * 10;
  return static_cast<VirtualTime>(std::exp2(exponent));
}

void Scheduler::wait_for_space(Queue& queue, Lock& lock) {
  std::deque<TaskPtr>& future = queue.future;
  while (!future.empty() && future.front()->end < now_) future.pop_front();
  if (future.size() >= queue_limit) {
    const TaskPtr middle = future[queue_limit / 2];
    return wait(middle, lock);
  }
  // What is over in virtual time may wait for its turn on this machine; for more the clock would
  // have to go on.
  if (queue.waiting.size() < queue_limit) return;
  const TaskPtr over = queue.waiting[(queue.waiting.size() - future.size() - 1) / 2];
  await(over, lock);
}

TaskPtr Scheduler::add(Queue& queue, Task task, Lock& lock) {
  wait_for_space(queue, lock);
  const auto added = std::make_shared<Task>(std::move(task));
  added->queue = &queue;
  added->number = ++tasks_;
  added->position = queue.queued;
  added->start = std::max(now_, queue.free_at);
  for (const TaskPtr& other : added->after) added->start = std::max(added->start, other->end);
  std::erase_if(added->after, [](const TaskPtr& other) { return other->done; });
  added->end = added->start + (added->run ? duration(queue) : 0);
  ++queue.queued;
  queue.free_at = added->end;
  queue.last = added;
  queue.waiting.push_back(added);
  queue.future.push_back(added);
  if (added->meets_peers) {
    std::erase_if(collectives_, [](const TaskPtr& other) { return other->done; });
    collectives_.push_back(added);
  }
  if (is_idle_) work_.notify_one();
  is_idle_ = false;
  return added;
}

void Scheduler::demand(const TaskPtr& task) {
  if (task->done || task->demanded) return;
  std::vector<TaskPtr> open{task};
  while (!open.empty()) {
    const TaskPtr next = std::move(open.back());
    open.pop_back();
    const auto& waiting = next->queue->waiting;
    // What comes before a demanded task of the queue is demanded too.
    for (std::size_t i = next->position - waiting.front()->position + 1; i-- > 0;) {
      if (waiting[i]->demanded) break;
      waiting[i]->demanded = true;
      for (const TaskPtr& other : waiting[i]->after)
        if (!other->done && !other->demanded) open.push_back(other);
    }
  }
}

void Scheduler::await(const TaskPtr& task, Lock& lock) {
  demand(task);
  task->is_awaited = true;
  work_.notify_one();
  done_.wait(lock, [&] { return task->done || stopping_; });
}

void Scheduler::wait(const TaskPtr& task, Lock& lock) {
  if (task == nullptr) return pause();
  if (!task->done) {
    horizon_ = std::max(horizon_, task->end);
    await(task, lock);
  }
  pause();
  now_ = std::max(now_, task->end + 1);
  last_call_ = Clock::now();
}

bool Scheduler::is_done(const TaskPtr& task, Lock& lock) {
  if (task == nullptr) {
    pause();
    return true;
  }
  // That it has run already is no news before its virtual end.
  if (order_ == Order::random && task->end >= now_ && task->end > horizon_) {
    if (std::exchange(task->asked_among, tasks_) != tasks_) task->queries = 0;
    now_ += task->queries++;
    return false;
  }
  if (task->done) {
    pause();
    return true;
  }
  if (order_ == Order::late) {
    if (++task->queries < queries_before_wait) return false;
    demand(task);
  }
  task->is_awaited = true;
  work_.notify_one();
  done_.wait(lock, [&] { return task->done || stopping_ || is_held_up(task); });
  pause();
  return task->done;
}

bool Scheduler::is_held_up(const TaskPtr& task) {
  std::unordered_set<const Task*> seen;
  std::vector<TaskPtr> open{task};
  while (!open.empty()) {
    const TaskPtr next = std::move(open.back());
    open.pop_back();
    if (next->done || !seen.insert(next.get()).second) continue;
    for (const TaskPtr& before : next->queue->waiting) {
      if (before->is_stalled || before->waiting_since) return true;
      for (const TaskPtr& other : before->after) open.push_back(other);
      if (before == next) break;
    }
  }
  return false;
}

void Scheduler::drain(Lock& lock) {
  using namespace std::chrono_literals;
  for (Queue& queue : queues_)
    if (!queue.waiting.empty()) demand(queue.waiting.back());
  const auto is_empty = [this] {
    return std::all_of(queues_.begin(), queues_.end(),
                       [](const Queue& queue) { return queue.waiting.empty(); });
  };
  is_drained_ = true;
  bool goes_on = true;
  while (goes_on && !stopping_ && !is_empty()) {
    const std::uint64_t before = finished_;
    work_.notify_one();
    done_.wait_for(lock, 500ms, [&] { return is_empty() || finished_ != before; });
    goes_on = finished_ != before || is_running_;
  }
  is_drained_ = false;
}

}  // namespace simgpu
