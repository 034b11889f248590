#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "comm/host/executor.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm::hier {

/// Runs a leader's exchanges with the other leaders, in order, while its ranks do something else.
/// The thread starts with the first one. Used by one thread at a time.
class BackgroundExchange {
 public:
  /// @param between the leaders; outlives this object. May be null where nothing is ever started.
  explicit BackgroundExchange(host::Executor* between) : between_(between) {}
  /// Waits for what is under way.
  ~BackgroundExchange();

  /// @param deadline lives until it has ended.
  void start(Operation operation, const host::Deadline& deadline);
  /// Waits until all but the last `left` have ended. After one that failed, those that follow it
  /// are not run.
  /// @param check is called now and then; what it throws ends the wait.
  /// @throws what an exchange threw
  void wait(std::uint64_t left, FunctionRef<void()> check);
  /// Waits until none is under way, however they end, and forgets their failures.
  void drain();

 private:
  struct Job {
    Operation operation;
    const host::Deadline* deadline;
  };
  void work();

  host::Executor* between_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::uint64_t under_way_ = 0;  // that wait or run
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm::hier
