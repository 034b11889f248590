#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

/// @file
/// Threads that work ahead of a consumer.

namespace lockstep::data {

/// Runs numbered jobs on worker threads, at most `slots` ahead of the consumer, and hands the
/// results over in the order of their numbers. Threads wait on condition variables, never in a
/// loop. One consumer thread.
class PrefetchPipeline {
 public:
  /// Does job `job` and leaves its result in slot `slot`. Called by several threads at once, never
  /// by two for one slot.
  using Produce = std::function<void(std::int64_t job, std::size_t slot)>;

  /// Starts the threads. @throws InvalidArgument for fewer than 1 worker or slot.
  PrefetchPipeline(int workers, int slots, Produce produce);
  /// Waits for the jobs in hand, drops the others and ends the threads.
  ~PrefetchPipeline();
  PrefetchPipeline(const PrefetchPipeline&) = delete;
  PrefetchPipeline& operator=(const PrefetchPipeline&) = delete;

  /// Begins jobs `first` to `end` - 1. What was left of earlier ones is dropped.
  void start(std::int64_t first, std::int64_t end);
  /// Drops all jobs and waits for those in hand. Afterwards no thread touches a slot.
  void stop();
  /// Waits for the next job and gives its slot; the slot given before may be filled again from now
  /// on. What the job threw is thrown here, and the job after it comes next.
  /// @throws InvalidArgument when all jobs have been taken.
  std::size_t take();

 private:
  struct Slot {
    bool ready = false;
    std::exception_ptr error;
  };

  void work();
  std::exception_ptr run(std::int64_t job) noexcept;
  void stop_locked(std::unique_lock<std::mutex>& lock);
  void join() noexcept;
  bool may_claim() const;
  std::size_t slot_of(std::int64_t job) const {
    return static_cast<std::size_t>(job) % slots_.size();
  }

  Produce produce_;
  std::mutex mutex_;
  std::condition_variable work_there_, job_done_;
  std::vector<Slot> slots_;
  // Jobs below claimed_ are with a worker or done; those below taken_ went to the consumer, the
  // last of them still in its slot.
  std::int64_t first_ = 0, taken_ = 0, claimed_ = 0, end_ = 0;
  int running_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::data
