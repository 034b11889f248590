#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nccl.h>

#include "comm/failure.hpp"
#include "comm/nccl/nccl_endings.hpp"
#include "lockstep/core/device.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

namespace lockstep::comm {

/// Owns a non-blocking NCCL communicator and the first failure of its group. Calls into NCCL are
/// made one at a time, and waited for by polling. An abort waits neither for them nor for NCCL.
class NcclGroup : public RefCounted {
 public:
  using Clock = std::chrono::steady_clock;
  /// How long an abort lets a call come back that polls, as most do. One that waits within NCCL, as
  /// for room in the device's queue, ends with the communicator.
  static constexpr auto call_grace_period = std::chrono::seconds(1);

  /// Joins a new group. @throws NcclError, Timeout
  NcclGroup(Device device, const ncclUniqueId& id, int rank, int size,
            std::chrono::milliseconds timeout);
  /// Takes over a communicator that a split made. @param endings those of the world.
  NcclGroup(Device device, ncclComm_t communicator, std::shared_ptr<NcclEndings> endings);
  ~NcclGroup() override;

  Device device() const { return device_; }
  int rank() const;
  int size() const;

  /// Calls NCCL with this group's communicator and waits until it has done its part on the host.
  /// @param call name for messages. @throws the group's failure, NcclError, Timeout
  void run(const char* call, std::chrono::milliseconds timeout,
           FunctionRef<ncclResult_t(ncclComm_t)> body);
  /// The part of this group with a colour, or null without one. @throws as `run`
  IntrusivePtr<NcclGroup> split(int color, int key, std::chrono::milliseconds timeout);

  /// Registers memory on the group's device. @return NCCL's handle. @throws the group's failure,
  /// which this is none of, NcclError, Unsupported
  void* register_range(void* data, std::size_t bytes);
  /// Takes that back, once what the group has under way has ended: NCCL's call may wait for the
  /// device. Nothing to do once the group has ended; of one that has failed it waits a little for
  /// the end.
  void deregister(std::span<void* const> handles) noexcept;
  /// How `deregister` finds out whether nothing is under way; null: nothing is. Returns once no
  /// call of the former is.
  void set_idle_check(std::function<bool()> is_idle);

  /// Looks for errors that NCCL met in the background; records and aborts on one.
  void poll_background();
  /// What a failure makes doubtful.
  enum class Lost {
    everything,  ///< all results of the group
    under_way    ///< those that were counted by `count_lost` before
  };
  /// Ends the group on this rank, without waiting: kernels under way return, later calls fail. As
  /// long as there are doubtful results of which no caller was told, the failure is kept for those
  /// who read results (see runtime/background_failure.hpp); no longer once a caller got it and the
  /// group is gone. Only the group's first failure counts.
  void abort(const Failure& failure, Lost lost = Lost::everything) noexcept;
  /// One result more, or with -1 one less, is lost without its caller's knowledge.
  void count_lost(int results) { *lost_ += results; }
  /// Leaves in good order, without waiting for the other ranks.
  void finish() noexcept;
  /// Waits until this group, and all that belong to the same world and were left or aborted, are
  /// gone; not for longer than `limit`.
  void wait_for_endings(std::chrono::milliseconds limit) noexcept { endings_->wait(limit); }
  /// Throws the first failure to a caller, if there was one.
  void raise_if_failed() const;
  /// The program itself ended the group: it knows.
  void note_told() const { is_told_.store(true); }
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// The first failure.
  std::optional<Failure> failure() const;

 private:
  // What NCCL may still use after the group is gone, while its communicator comes to its end.
  struct Handle {
    std::atomic<ncclComm_t> communicator{nullptr};
    std::timed_mutex call_mutex;       // one NCCL call at a time
    std::vector<void*> registered;     // with the communicator; guarded by call_mutex
    std::atomic<bool> is_gone{false};  // aborted, and NCCL is through with it
    std::mutex splits_mutex;
    std::list<ncclComm_t> splits;  // where NCCL's threads put the results of splits

    /// Where a split may put its result; it stays until it is taken.
    std::list<ncclComm_t>::iterator new_split();
    /// The result of a split that has ended; null if there is none, or an abort took it.
    ncclComm_t take_split(std::list<ncclComm_t>::iterator slot);
    /// Results that nobody took, once the communicator is gone.
    std::vector<ncclComm_t> take_unclaimed_splits();
  };

  void complete(const char* call, ncclResult_t status, Clock::time_point deadline);
  void wait_until_idle();
  bool try_deregister(std::span<void* const> handles);
  void deregister_all(ncclComm_t communicator) noexcept;
  static void abort_communicator(Handle& handle) noexcept;
  void keep(const Failure& failure) noexcept;
  void throw_if_failed() const;

  Device device_;
  std::shared_ptr<NcclEndings> endings_;
  std::shared_ptr<Handle> handle_ = std::make_shared<Handle>();
  std::mutex idle_mutex_;  // held during the check
  std::function<bool()> is_idle_;
  mutable std::mutex failure_mutex_;  // guards failure_
  std::optional<Failure> failure_;
  std::atomic<bool> has_failed_{false};
  mutable std::atomic<bool> is_told_{false};  // a caller got the failure
  // Doubtful results whose callers were not told; shared with the failure that is kept.
  std::shared_ptr<std::atomic<int>> lost_ = std::make_shared<std::atomic<int>>(0);
  std::uint64_t kept_ = 0;  // number of the failure that is kept; 0: none
};

}  // namespace lockstep::comm
