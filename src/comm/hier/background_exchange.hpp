#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/host/executor.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm::hier {

/// Runs operations of one executor, in order, while their rank does something else. The thread
/// starts with the first one. Used by one thread at a time.
class BackgroundExchange {
 public:
  /// @param executor outlives this object; may be null where nothing is ever started.
  explicit BackgroundExchange(host::Executor* executor) : executor_(executor) {}
  /// Waits for what is under way.
  ~BackgroundExchange();

  /// @param deadline lives until it has ended.
  void start(std::vector<Operation> operations, const host::Deadline& deadline);
  /// @throws what one that was started threw
  void check();
  /// Waits until all but the last `left` have ended. After one that failed, those that follow it
  /// are not run.
  /// @param check is called now and then; what it throws ends the wait.
  /// @throws what an exchange threw
  void wait(std::uint64_t left, FunctionRef<void()> check);
  /// Waits until none is under way, however they end, and forgets their failures.
  void drain();

 private:
  struct Job {
    std::vector<Operation> operations;
    const host::Deadline* deadline;
  };
  void work();

  host::Executor* executor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::uint64_t under_way_ = 0;  // that wait or run
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm::hier
