#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/group_registry.hpp"
#include "comm/host/collectives.hpp"
#include "comm/host/host_work.hpp"
#include "comm/host/transport.hpp"
#include "comm/operation_communicator.hpp"

namespace lockstep::comm::host {

/// A communicator on host memory over any transport. Operations queue up and run on a progress
/// thread of the communicator's own, because neither MPI nor sockets move data by themselves while
/// the caller computes.
class HostCommunicator final : public OperationCommunicator {
 public:
  /// @param membership tells of members that leave the group; made before the transport.
  HostCommunicator(std::unique_ptr<Transport> transport, std::string name,
                   const CommunicatorOptions& options, GroupMembership membership = {});
  /// Lets what is queued end, for as long as the options say; then it aborts the group.
  ~HostCommunicator() override;

  Device device() const override { return cpu; }
  std::string_view backend() const override { return transport_->backend(); }
  CommunicatorPtr split(int color, int key) override;
  void abort(const std::string& reason) noexcept override;
  std::string describe_progress() const override;

 private:
  using WorkPtr = IntrusivePtr<HostWork>;

  Work submit(Operation operation) override;
  void progress();
  WorkPtr next();
  void execute(HostWork& work);
  std::optional<Failure> run(const Operation& operation);
  bool is_seen_by_all(const Failure& failure, const Operation& operation) const;
  void fail(const Failure& failure);
  void end(const Failure& failure);
  void drain();
  void member_left(const Departure& departure);
  Failure failure_of_gone_peer(const Operation& operation, int peer);
  bool can_never_end(const Operation& operation) const;
  std::string describe_departure(const Operation& operation) const;
  std::string context(const Operation& operation) const;

  std::unique_ptr<Transport> transport_;
  Collectives collectives_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, drained_, member_left_;
  std::deque<WorkPtr> queue_;
  WorkPtr running_, last_;
  std::optional<Failure> failure_;
  std::optional<Departure> departure_;  // the earliest in the order of the collectives
  std::uint64_t sequence_ = 0;
  bool stopping_ = false;
  std::atomic<bool> has_work_{false};
  GroupMembership membership_;
  std::thread thread_;
};

}  // namespace lockstep::comm::host
