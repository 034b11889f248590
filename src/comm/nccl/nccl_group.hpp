#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include <nccl.h>

#include "comm/failure.hpp"
#include "lockstep/core/device.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

namespace lockstep::comm {

/// Owns a non-blocking NCCL communicator and the first failure of its group. Calls into NCCL are
/// made one at a time, and waited for by polling, so that an abort from any thread gets through.
class NcclGroup : public RefCounted {
 public:
  using Clock = std::chrono::steady_clock;

  /// Joins a new group. @throws NcclError, Timeout
  NcclGroup(Device device, const ncclUniqueId& id, int rank, int size,
            std::chrono::milliseconds timeout);
  /// Takes over a communicator that a split made.
  NcclGroup(Device device, ncclComm_t communicator);
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

  /// Looks for errors that NCCL met in the background; records and aborts on one.
  void poll_background();
  /// Ends the group on this rank: kernels under way return, later calls fail. Until a caller got
  /// the failure and the group is gone, it is kept for those who read results (see
  /// runtime/background_failure.hpp).
  void abort(const Failure& failure) noexcept;
  /// Waits for the peers to finish what is under way, and leaves; if they do not, in a while, that
  /// is a failure. Aborts instead while an exception unwinds. Later calls fail.
  void finish() noexcept;
  /// Throws the first failure to a caller, if there was one.
  void raise_if_failed() const;
  /// The program itself ended the group: it knows.
  void note_told() const { is_told_.store(true); }
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// The first failure.
  std::optional<Failure> failure() const;

 private:
  void complete(const char* call, ncclResult_t status, Clock::time_point deadline);
  bool try_finalize() noexcept;
  void keep(const Failure& failure) noexcept;
  void throw_if_failed() const;

  Device device_;
  ncclComm_t communicator_ = nullptr;
  mutable std::mutex call_mutex_;     // one NCCL call at a time
  mutable std::mutex failure_mutex_;  // guards failure_
  std::optional<Failure> failure_;
  std::atomic<bool> has_failed_{false};
  mutable std::atomic<bool> is_told_{false};  // a caller got the failure
  std::uint64_t kept_ = 0;                    // number of the failure that is kept; 0: none
};

}  // namespace lockstep::comm
