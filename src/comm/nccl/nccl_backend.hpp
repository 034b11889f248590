#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/backends.hpp"
#include "comm/communicator_backend.hpp"
#include "comm/departures.hpp"
#include "comm/ended_operations.hpp"
#include "comm/inquiry.hpp"
#include "comm/nccl/nccl_calls.hpp"
#include "comm/nccl/nccl_contacts.hpp"
#include "comm/nccl/nccl_group.hpp"
#include "comm/nccl/nccl_work.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/stream.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::comm {

/// A backend over NCCL. Operations run on a high-priority stream of their own, ordered after
/// the caller's stream and before whatever waits for their Work. A monitor thread turns NCCL's
/// background errors, overdue operations, and those that wait for a rank that has left, into
/// failures and aborts the group; it tells the other ranks of failures, and lets the job compare
/// what its ranks call.
class NcclBackend final : public CommunicatorBackend, private GroupMember {
 public:
  NcclBackend(IntrusivePtr<NcclGroup> group, std::string name, const CommunicatorOptions& options,
              ComparisonPtr comparison, GroupMembership membership);
  ~NcclBackend() override;

  Device device() const override { return group_->device(); }
  std::string_view kind() const override { return "nccl"; }
  Work submit(std::span<Operation> operations) override;
  std::unique_ptr<CommunicatorBackend> split(const SplitPlan& plan) override;
  std::size_t registration_granularity() const override;
  std::unique_ptr<Registration> register_memory(std::span<const MemoryRange> ranges) override;
  void declare(std::uint64_t subject, const std::string& end) override;
  void abort(const std::string& reason) noexcept override;
  std::string describe_progress() const override;

 private:
  using WorkPtr = IntrusivePtr<NcclWork>;

  void member_left(const Departure& departure) override;
  void member_asks_who_is_behind(std::uint64_t collective) override;
  void member_answers(const Standing& standing) override;
  void group_failed(const std::string& reason) noexcept override;
  void job_failed(const std::string& reason) noexcept override;
  void leave() noexcept override;
  NcclGroup::Clock::duration running_for() const noexcept override;
  void look_after() noexcept override;

  /// The operations of this backend in a captured step.
  struct Captured;
  Work capture(std::span<Operation> operations, StepRecording& recording);
  void refuse_first_message(int peer, StepRecording& recording) const;
  void begin_launch(Captured& captured);
  void end_launch(Captured& captured);
  void end_captured_steps() noexcept;
  NcclScratch& scratch() { return *static_cast<NcclScratch*>(scratch_->data); }
  void make_contacts(std::span<const Operation> operations);
  /// @param leaves_out all but NCCL's part
  WorkPtr queue(std::span<Operation> operations, bool leaves_out = false);
  void enqueue_all(std::span<const Operation> operations);
  void begin_watch(const WorkPtr& work);
  void end_watch(const WorkPtr& work) noexcept;
  void raise_if_lost(NcclWork& work);
  void tell(const Operation& operation);
  void monitor() noexcept;
  void watch();
  bool has_news();
  void obey_news();
  void obey_departures(std::span<const Departure> departures);
  void check_in_flight();
  void retire_completed();
  std::optional<Failure> failure_in_flight();
  std::optional<std::string> failure_of_overdue(NcclWork& work);
  void ask();
  void answer();
  Standing standing_in(std::uint64_t collective);
  enum class Words : bool { few, all };  // of labels
  std::string doing(Words words) const;
  void fail_under_way(const Failure& failure) noexcept;
  void limit_wait_for_the_gone(NcclWork& work);
  void announce_failure();
  bool is_under_way();
  void drain();
  std::string as_of() const;

  IntrusivePtr<NcclGroup> group_;
  ComparisonPtr comparison_;
  Stream stream_;
  MemoryBlock* scratch_;  // an NcclScratch
  NcclContacts contacts_;
  std::uint64_t sequence_ = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages_;  // so far, from one rank to another
  std::shared_ptr<Captured> captured_;                     // of the step that is being captured
  std::vector<std::weak_ptr<StepLauncher>> launchers_;     // of the graphs with its collectives

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // of the monitor
  bool stopping_ = false;
  std::once_flag left_;
  std::atomic<bool> has_left_{false};
  std::atomic<bool> others_know_{false};  // of the group's failure
  std::uint64_t begun_ = 0;               // collectives that this rank has called
  std::deque<WorkPtr> in_flight_;
  // The first of them, by the last look; the clock's zero: none.
  std::atomic<NcclGroup::Clock::time_point> running_since_{NcclGroup::Clock::time_point()};
  std::atomic<NcclGroup::Clock::time_point> last_look_{NcclGroup::Clock::now()};  // at them
  std::atomic<std::chrono::milliseconds> longest_timeout_;  // of any operation

  // What the control channel's thread has seen of the monitor: its last look, and for how long
  // none.
  struct Silence {
    NcclGroup::Clock::time_point last_look, turn;
    NcclGroup::Clock::duration length;
  };
  Silence silence_{};
  EndedOperations<NcclWork> ended_;
  Departures departures_;

  // What the control channel's thread brings. Never held while the device is asked, which may hang:
  // that thread has to hear how the job ends.
  std::mutex news_mutex_;
  std::optional<std::string> news_;    // why another member ended the group
  std::vector<Departure> left_news_;   // of other members
  std::set<std::uint64_t> questions_;  // of other members: who is in these collectives
  Inquiry inquiry_;                    // of this rank

  GroupMembership membership_;
  std::thread monitor_;
};

}  // namespace lockstep::comm
