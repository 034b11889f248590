#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

/// @file
/// Handle of a collective that was started and may not be done.

namespace lockstep::comm {

/// When an operation was handed over, began to run, and ended; for traces and the planner.
struct WorkTimes {
  using Clock = std::chrono::steady_clock;
  Clock::time_point submitted, started, finished;
};

/// What a backend implements behind Work.
class WorkState : public RefCounted {
 public:
  /// See Work::wait.
  virtual void wait() = 0;
  /// See Work::synchronize.
  virtual void synchronize() = 0;
  /// See Work::is_completed.
  virtual bool is_completed() const = 0;
  /// See Work::exception.
  virtual std::exception_ptr exception() const = 0;
  /// See Work::times.
  virtual std::optional<WorkTimes> times() const { return std::nullopt; }
  /// See Work::duration.
  virtual std::optional<WorkTimes::Clock::duration> duration() const {
    const auto when = times();
    return when ? std::optional(when->finished - when->started) : std::nullopt;
  }
  /// See Work::release_memory.
  virtual void release_memory() noexcept {}
};

/// An operation under way. Copies refer to the same operation. Dropping a Work does not cancel it:
/// the buffers stay in use until it is complete. A default-constructed Work is complete.
class Work {
 public:
  Work() = default;
  /// Wraps a backend's state.
  explicit Work(IntrusivePtr<WorkState> state) : state_(std::move(state)) {}

  /// Makes what the caller does next see the result: on the CPU it blocks until the operation is
  /// complete, on a GPU it makes the calling thread's current stream wait while the host goes on.
  /// @throws the operation's failure: Mismatch, Timeout, PeerFailure, MpiError, NcclError.
  void wait() const {
    if (state_) state_->wait();
  }
  /// Blocks the host until the operation is complete, on every device.
  /// @throws as `wait`.
  void synchronize() const {
    if (state_) state_->synchronize();
  }
  /// True once the operation has ended, well or not. Never blocks.
  bool is_completed() const { return !state_ || state_->is_completed(); }
  /// The failure of an operation that has ended, or null.
  std::exception_ptr exception() const { return state_ ? state_->exception() : nullptr; }
  /// When it ran, once it has ended well; on a GPU by the device's clock, which is compared with
  /// the host's for that, now and then on the device.
  std::optional<WorkTimes> times() const { return state_ ? state_->times() : std::nullopt; }
  /// How long it ran, once it has ended well. Does not wait for a GPU, nor ask for its clock.
  std::optional<WorkTimes::Clock::duration> duration() const {
    return state_ ? state_->duration() : std::nullopt;
  }
  /// For whoever gives the operation's memory back once it has ended, without waiting for it: what
  /// the calling thread's current stream does from here on comes after the last access. One that
  /// failed may have a kernel on the device still.
  void release_memory() const noexcept {
    if (state_) state_->release_memory();
  }

 private:
  IntrusivePtr<WorkState> state_;
};

}  // namespace lockstep::comm
