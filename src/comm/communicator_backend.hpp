#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "comm/operation.hpp"
#include "comm/split.hpp"
#include "comm/timeout.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {

/// The seam below Communicator: carries out the operations of one group. Arguments are checked, and
/// calls have become Operations, before a backend sees them; all it knows of collectives is in
/// `submit`. How it moves data is its own affair: messages, shared memory, another library.
class CommunicatorBackend {
 public:
  CommunicatorBackend(const CommunicatorBackend&) = delete;
  CommunicatorBackend& operator=(const CommunicatorBackend&) = delete;
  virtual ~CommunicatorBackend() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  /// Those given; the timeout is there in any case.
  const CommunicatorOptions& options() const { return options_; }

  /// Where buffers must live.
  virtual Device device() const = 0;
  /// See Communicator::backend.
  virtual std::string_view kind() const = 0;

  /// Starts operations, at least one, as one unit (see Communicator::batch), after those of earlier
  /// calls. Their sequence numbers are the backend's to give.
  /// @param operations may be moved from.
  virtual Work submit(std::span<Operation> operations) = 0;

  /// Makes the backend of this rank's part of the group; null if the plan has no members. Called
  /// once nothing is under way on this rank, by every rank.
  virtual std::unique_ptr<CommunicatorBackend> split(const SplitPlan& plan) = 0;

  /// See allocate_for; from any thread.
  virtual IntrusivePtr<Memory> allocate(std::size_t /*bytes*/) { return nullptr; }

  /// See comm::registration_granularity.
  virtual std::size_t registration_granularity() const { return 0; }
  /// Registers pieces on this rank alone. @throws NcclError, Unsupported if it cannot: none is then
  virtual std::unique_ptr<Registration> register_memory(std::span<const MemoryRange> /*ranges*/) {
    return nullptr;
  }

  /// Lets the job compare how the members end what they began alike, such as the training of a
  /// model: no operation follows that could. It waits for nobody. A difference ends the job with a
  /// message that shows both; without a Session, or `run_ranks`, nothing is compared.
  /// @param subject tells such declarations apart; each member makes one, in any order.
  virtual void declare(std::uint64_t subject, const std::string& end) = 0;
  /// Has `last` called before this rank leaves the group, to declare what nobody else ended. One
  /// for each subject; null takes it away.
  void before_leaving(std::uint64_t subject, std::function<void()> last) {
    if (last)
      last_[subject] = std::move(last);
    else
      last_.erase(subject);
  }

  /// For whoever hands this backend its operations, and waits for something else while none is
  /// under way. @throws PeerFailure once the group has failed, here or on another rank
  virtual void check() {}

  /// See Communicator::abort; from any thread.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// See Communicator::describe_progress; from any thread.
  virtual std::string describe_progress() const = 0;

 protected:
  CommunicatorBackend(int rank, int size, std::string name, const CommunicatorOptions& options)
      : rank_(rank), size_(size), name_(std::move(name)), options_(with_timeout(options)) {}

  /// For `leave`: calls what was to be called before.
  void call_last() {
    for (auto& [subject, last] : std::exchange(last_, {})) last();
  }

  /// For operations that come after the end of the session, by whoever still owns the group.
  [[noreturn]] void refuse_after_leaving() const {
    LOCKSTEP_THROW(InvalidArgument, "rank ", rank_, " has left ", name_,
                   ": the Session has ended; what uses a group must end before it");
  }

 private:
  const int rank_, size_;
  const std::string name_;
  const CommunicatorOptions options_;
  std::map<std::uint64_t, std::function<void()>> last_;
};

}  // namespace lockstep::comm
