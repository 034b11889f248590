#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "base/options.hpp"
#include "engine/queue.hpp"

/// @file
/// Runs tasks in virtual time.
///
/// A task starts, in virtual time, when the task before it in its queue, those that it waits for
/// and the host's call are over; all of them are known when it is queued. Its duration is drawn
/// from the seed and from its place in its queue. One thread, the executor, runs the tasks in the
/// order of their starts, each once the host's clock is past it. The host's clock takes one tick a
/// call and jumps to the end of what the host waits for: until it is reached, other threads see
/// what is over by then. While the host only asks, again and again, whether something is done, it
/// takes ever more ticks for each such task: such loops sleep between their calls. So the order
/// depends on the seed and the host's calls alone, but for collectives that wait for other
/// processes: see collectives.cpp.

namespace simgpu {

/// What happens around the tasks, on the executor thread.
class SchedulerObserver {
 public:
  virtual ~SchedulerObserver() = default;
  /// First thing on the thread, without the mutex.
  virtual void begin_thread() {}
  /// Before each attempt to run a task, without the mutex.
  virtual void begin_task(const Task&) {}
  /// After a task has run to its end and before that shows, without the mutex.
  virtual void end_task(const Task&) {}
  /// Before the executor sleeps, turns to another queue, or runs what meets others; each
  /// millisecond, between tasks; at its end; and before a call of the host returns that waits or
  /// asks. On either thread, with the mutex.
  virtual void pause() {}
};

/// All functions want the caller to hold the mutex, as `lock` where they may let go of it.
class Scheduler {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// @param observer outlives the scheduler
  Scheduler(std::mutex& mutex, Order order, std::uint64_t seed, SchedulerObserver& observer);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// A new queue, valid until `retire`.
  Queue& add_queue(int device, unsigned number, Component component, std::string name);
  /// The queue ends when its tasks are done.
  void retire(Queue& queue);

  /// One call of the host.
  void tick();
  /// The host's clock.
  VirtualTime now() const { return now_; }

  /// Queues a task whose `after`, `run` and flags are set; `after` names tasks that are done too,
  /// or the virtual times would depend on the machine's load. Waits while the queue is full, as a
  /// real launch does.
  TaskPtr add(Queue& queue, Task task, Lock& lock);

  /// Waits until a task is done, or the executor has stopped.
  void wait(const TaskPtr& task, Lock& lock);
  /// True if a task is done in the host's virtual time. A task that is over by then but has not run
  /// yet is waited for, unless its peers or a fault hold it up.
  bool is_done(const TaskPtr& task, Lock& lock);

  /// Runs what is queued, as far as that is possible without other processes.
  void drain(Lock& lock);
  /// Ends the executor after the task that it runs. Nothing runs any more.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  VirtualTime duration(const Queue& queue) const;
  void wait_for_space(Queue& queue, Lock& lock);
  bool is_allowed(const Task& task) const;
  static bool is_ready(const Task& task);
  static bool is_held_up(const TaskPtr& task);
  static void demand(const TaskPtr& task);

  void await(const TaskPtr& task, Lock& lock);

  void demand_collectives();
  bool may_overtake(const Task& task, const Task& waiting) const;
  std::vector<TaskPtr> waiting_for_peers() const;
  bool poll_collectives(Lock& lock);

  void run_executor();
  TaskPtr next_task() const;
  void execute(const TaskPtr& task, Lock& lock);
  void pause();
  void finish(const TaskPtr& task);
  void sleep(Lock& lock);

  std::mutex& mutex_;
  const Order order_;
  const std::uint64_t seed_;
  SchedulerObserver& observer_;
  std::condition_variable work_;  // for the executor
  std::condition_variable done_;  // for the host
  std::list<Queue> queues_;
  std::vector<TaskPtr> collectives_;  // not demanded yet
  VirtualTime now_ = 1;
  VirtualTime horizon_ = 0;  // the end of what the host waits for
  std::uint64_t tasks_ = 0;
  std::uint64_t finished_ = 0;
  Clock::time_point last_call_ = Clock::now();
  Clock::time_point last_pause_ = Clock::now();
  const Queue* last_queue_ = nullptr;  // of the task that ran last; may be gone
  bool is_running_ = false;            // a task that ends by itself
  bool is_idle_ = false;               // the executor sleeps until something is queued
  bool is_drained_ = false;            // a thread of the host sleeps until anything is done
  bool stopping_ = false;
  std::thread executor_;
};

}  // namespace simgpu
