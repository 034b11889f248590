#pragma once

#include <atomic>
#include <optional>

#include "comm/failure.hpp"
#include "comm/operation.hpp"
#include "lockstep/comm/work.hpp"

namespace lockstep::comm::host {

/// State of an operation that a progress thread runs.
class HostWork final : public WorkState {
 public:
  explicit HostWork(Operation operation) : operation_(std::move(operation)) {
    times_.submitted = WorkTimes::Clock::now();
  }
  /// A failure that no caller was told is kept (see runtime/background_failure.hpp).
  ~HostWork() override;

  const Operation& operation() const { return operation_; }

  /// Its place among the group's collectives; set before any other thread sees the work.
  void set_sequence(std::uint64_t sequence) { operation_.sequence = sequence; }

  /// The progress thread begins.
  void start() { times_.started = WorkTimes::Clock::now(); }
  /// The progress thread ends it, with or without a failure; wakes the waiters.
  void finish(std::optional<Failure> failure = std::nullopt);

  void wait() override;
  void synchronize() override { wait(); }
  bool is_completed() const override { return done_.load(std::memory_order_acquire); }
  std::exception_ptr exception() const override;
  std::optional<WorkTimes> times() const override;

 private:
  Operation operation_;
  WorkTimes times_;
  std::optional<Failure> failure_;
  std::atomic<bool> done_{false};
};

}  // namespace lockstep::comm::host
