#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator_backend.hpp"
#include "comm/departures.hpp"
#include "comm/ended_operations.hpp"
#include "comm/host/executor.hpp"
#include "comm/host/float_mode.hpp"
#include "comm/host/host_work.hpp"
#include "comm/inquiry.hpp"

namespace lockstep {
class StepRecording;
}

namespace lockstep::comm::host {

/// A backend on host memory, over any Executor. Operations queue up and run on a progress thread of
/// the communicator's own, because neither MPI nor sockets move data by themselves while the caller
/// computes. A small collective that nothing is before is offered to whoever waits for it first:
/// the way to another thread and back takes longer than it does. Failures, deadlines and ranks that
/// leave are the backend's business, whichever thread runs.
class HostBackend final : public CommunicatorBackend, private GroupMember, private WaiterRuns {
 public:
  /// @param membership tells of members that leave the group; made before the executor.
  HostBackend(std::unique_ptr<Executor> executor, std::string name,
              const CommunicatorOptions& options, GroupMembership membership = {});
  /// Lets what is queued end, for as long as the options say; then it aborts the group.
  ~HostBackend() override;

  Device device() const override { return cpu; }
  std::string_view kind() const override { return executor_->kind(); }
  Work submit(std::span<Operation> operations) override;
  std::unique_ptr<CommunicatorBackend> split(const SplitPlan& plan) override;
  IntrusivePtr<Memory> allocate(std::size_t bytes) override { return executor_->allocate(bytes); }
  void declare(std::uint64_t subject, const std::string& end) override;
  void check() override;
  void abort(const std::string& reason) noexcept override;
  std::string describe_progress() const override;

 private:
  using WorkPtr = IntrusivePtr<HostWork>;
  using Operations = std::span<const Operation>;

  void member_left(const Departure& departure) override;
  void member_asks_who_is_behind(std::uint64_t collective) override;
  void member_answers(const Standing& standing) override;
  void member_awaits(const AwaitedMessage& message) override;
  void group_failed(const std::string& reason) noexcept override { abort(reason); }
  void job_failed(const std::string& reason) noexcept override { abort(reason); }
  void leave() noexcept override;
  Clock::duration running_for() const noexcept override;

  Work capture(std::span<Operation> operations, StepRecording& recording);
  bool enqueue(const WorkPtr& work);
  void run_claimed(HostWork& work) override;
  void progress();
  WorkPtr next();
  WorkPtr take_first();
  bool is_due(const HostWork& work) const;
  void sleep(std::unique_lock<std::mutex>& lock);
  void execute(const WorkPtr& work) noexcept;
  void retire(const WorkPtr& work, std::optional<Failure> failure);
  std::optional<Failure> carry_out(HostWork& work);
  std::optional<Failure> begin(HostWork& work);
  std::optional<Failure> run(Operations operations);
  Failure failure_of_timeout(Operations operations, const TransferTimeout& timeout);
  std::optional<std::string> ask_who_is_behind(std::uint64_t collective);
  void answer_who_is_behind(std::unique_lock<std::mutex>& lock);
  std::string doing() const;
  void count_messages(Operations operations);
  void tell_what_is_awaited();
  std::optional<Failure> failure_of_missed_message() const;
  bool is_seen_by_all(const Failure& failure, Operations operations) const;
  void fail(const Failure& failure);
  void end(const Failure& failure);
  bool is_under_way();
  void warn_of_unreceived() noexcept;
  void drain();
  void limit_waits_for_the_gone(Operations operations);
  Failure failure_of_gone_peer(Operations operations, const PeerGone& missed);
  std::string context(Operations operations) const;

  std::unique_ptr<Executor> executor_;
  const FloatMode float_mode_;  // of the progress thread

  mutable std::mutex mutex_;
  std::condition_variable wake_, drained_, member_left_, member_answers_;
  std::deque<WorkPtr> queue_;
  WorkPtr running_;  // on the progress thread or on one that waits for it
  WorkPtr failed_;   // the last that did: if nobody was told, it says so where the backend ends
  EndedOperations<HostWork> ended_;
  Deadline deadline_;  // of the work that runs; set and brought forward with the mutex held
  std::optional<Failure> failure_;
  Departures departures_;
  std::uint64_t begun_ = 0;            // collectives
  std::set<std::uint64_t> questions_;  // of other members: see GroupMember
  Inquiry inquiry_;                    // of this rank
  // Messages of the operations that have begun, by the other rank: how many were sent, or received.
  std::map<int, std::uint64_t> sent_, received_;
  std::map<int, AwaitedMessage> awaited_;  // from this rank, or by it: by the rank that waits
  std::uint64_t sequence_ = 0;
  std::uint64_t offers_ = 0, seen_offers_ = 0;  // to waiters; when the progress thread last slept
  bool sleeps_ = false;                         // the progress thread, until it is woken
  bool stopping_ = false;
  std::once_flag left_;
  std::atomic<bool> has_left_{false};
  std::atomic<bool> has_work_{false};
  std::atomic<Clock::time_point> running_since_{Clock::time_point()};  // the clock's zero: nothing
  GroupMembership membership_;
  std::thread thread_;
};

}  // namespace lockstep::comm::host
