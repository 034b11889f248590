#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/nccl/nccl_group.hpp"
#include "comm/signature.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/runtime/event.hpp"

namespace lockstep::comm {

/// An operation, or a batch, on the communication stream, complete when its last event is reached.
class NcclWork final : public WorkState {
 public:
  /// Marks the present end of `stream` as its beginning. One that is captured runs with each
  /// launch of its graph: outside of the captured step there is nothing to wait for or to ask.
  /// @param operations, of which the first is named in messages.
  NcclWork(IntrusivePtr<NcclGroup> group, StreamRef stream, std::span<const Operation> operations);

  /// Marks the present end of `stream` as its end. Until then NCCL may be connecting ranks for it,
  /// on the thread that makes the call, to which a failure comes as an exception.
  void finish(StreamRef stream) {
    done_.record(stream);
    is_queued_.store(true, std::memory_order_release);
  }

  void wait() override;
  void synchronize() override;
  bool is_completed() const override;
  std::exception_ptr exception() const override;
  std::optional<WorkTimes> times() const override;
  std::optional<WorkTimes::Clock::duration> duration() const override;
  void release_memory() noexcept override;

  /// What it is, for messages.
  std::string description() const { return describe(first_, operations_); }
  /// The same with the whole of its label.
  std::string full_description() const { return describe(first_, operations_, label_); }
  /// Takes over what the operations are called now: of a captured step, in this launch.
  void rename(std::span<const Operation> operations);
  /// Whether it is the launch of a captured step.
  bool is_launch() const { return first_.captured != 0; }
  /// The number of the last collective in it; none for sends and receives.
  std::optional<std::uint64_t> collective() const { return collective_; }
  /// The ranks at the other end of its sends and receives.
  const std::vector<int>& partners() const { return partners_; }
  /// Gives it so much time from now on, or from when the device comes to it if that is later; of
  /// several limits the least.
  void limit_run(std::chrono::milliseconds limit);
  /// Since when the device is known to have come to it; nothing before. @throws CudaError
  std::optional<NcclGroup::Clock::time_point> running_since();
  /// In what it failed if it has used up what `limit_run` gave it: "did not end within ...".
  std::optional<std::string> overrun();
  /// Whether its time is over, which began with the call.
  bool is_overdue() const { return NcclGroup::Clock::now() > deadline_; }
  NcclGroup::Clock::time_point deadline() const { return deadline_; }
  /// That time.
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// The number of the first operation: a message bears that of the collective it comes before.
  std::uint64_t sequence() const { return first_.sequence; }
  /// Its group is about to fail: unless it has ended, its result is lost, and whoever reads results
  /// gets the failure until its caller was told. @throws CudaError
  void note_failure();

 private:
  void raise_if_failed();
  void note_told() const;
  bool is_captured() const { return recording_ != 0; }
  bool is_queued() const { return is_queued_.load(std::memory_order_acquire); }
  bool has_ended() const { return is_queued() && done_.query(); }
  bool is_timed() const;
  void wait_on_current_stream() const;

  IntrusivePtr<NcclGroup> group_;
  std::uint64_t recording_;  // of the step that captures it; 0: none
  std::atomic<bool> is_queued_{false};
  Event started_, done_;
  Signature first_;
  std::string label_;
  std::size_t operations_;
  std::optional<std::uint64_t> collective_;
  std::vector<int> partners_;
  std::chrono::milliseconds timeout_;
  WorkTimes::Clock::time_point submitted_;
  NcclGroup::Clock::time_point deadline_;
  std::optional<NcclGroup::Clock::time_point> running_since_;
  std::optional<std::chrono::milliseconds> run_limit_;
  std::optional<NcclGroup::Clock::time_point> run_end_;  // once the device has come to it
  mutable std::atomic<bool> is_lost_{false};             // and its caller does not know
};

}  // namespace lockstep::comm
