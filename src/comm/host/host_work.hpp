#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/failure.hpp"
#include "comm/operation.hpp"
#include "comm/signature.hpp"
#include "lockstep/comm/work.hpp"

namespace lockstep::comm::host {

class HostWork;

/// What runs an operation on the thread that waits for it.
class WaiterRuns {
 public:
  /// Runs the work, which the calling thread has claimed, to its end.
  virtual void run_claimed(HostWork& work) = 0;

 protected:
  ~WaiterRuns() = default;
};

/// State of an operation, or of a batch of them, that a progress thread runs, or a thread that
/// waits for it.
class HostWork final : public WorkState {
 public:
  /// Moves from the operations, at least one.
  explicit HostWork(std::span<Operation> operations) : first_(std::move(operations.front())) {
    if (operations.size() > 1) {
      batch_.reserve(operations.size());
      batch_.push_back(std::move(first_));
      for (Operation& operation : operations.subspan(1)) batch_.push_back(std::move(operation));
    }
    times_.submitted = WorkTimes::Clock::now();
  }
  /// A failure that no caller was told is kept (see runtime/background_failure.hpp).
  ~HostWork() override;

  std::span<const Operation> operations() const {
    return batch_.empty() ? std::span(&first_, 1) : std::span(batch_);
  }
  /// Gives the operations their numbers; before any other thread sees the work.
  void take_numbers(std::uint64_t& next) {
    number(batch_.empty() ? std::span(&first_, 1) : std::span(batch_), next);
  }

  /// From now on whoever waits for it may run it; before any other thread sees the work.
  void offer_to_waiters(WaiterRuns& runner) { runner_ = &runner; }
  bool is_offered() const { return runner_ != nullptr; }
  /// True for one thread: the one that is to run it. Until it has, its backend stays.
  bool claim() { return !is_claimed_.load() && !is_claimed_.exchange(true); }

  /// What it is, for messages.
  std::string description() const { return describe(operations()); }
  /// The same with the whole of its label.
  std::string full_description() const { return describe_in_full(operations()); }

  /// When it was handed over.
  WorkTimes::Clock::time_point submitted() const { return times_.submitted; }
  /// Its thread begins.
  void start(WorkTimes::Clock::time_point now) { times_.started = now; }
  /// When it did; before that, the clock's zero.
  WorkTimes::Clock::time_point started() const { return times_.started; }
  /// Its thread ends it, with or without a failure; wakes the waiters.
  void finish(std::optional<Failure> failure = std::nullopt);

  void wait() override;
  void synchronize() override { wait(); }
  /// Of one that is completed: that it did not end well.
  bool has_failed() const { return failure_.has_value(); }
  bool is_completed() const override { return done_.load(std::memory_order_acquire); }
  std::exception_ptr exception() const override;
  std::optional<WorkTimes> times() const override;

 private:
  void wait_for_its_thread() const;

  Operation first_;               // of a batch: moved from
  std::vector<Operation> batch_;  // empty for one operation, which is the rule
  WorkTimes times_;
  std::optional<Failure> failure_;
  WaiterRuns* runner_ = nullptr;
  std::atomic<bool> is_claimed_{false};
  std::atomic<bool> done_{false};
};

}  // namespace lockstep::comm::host
