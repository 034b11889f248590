#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

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
  HostCommunicator(std::unique_ptr<Transport> transport, std::string name,
                   const CommunicatorOptions& options);
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
  std::optional<Failure> failure_of(const Operation& operation);
  void fail(const Failure& failure);
  std::string context(const Operation& operation) const;

  std::unique_ptr<Transport> transport_;
  Collectives collectives_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<WorkPtr> queue_;
  WorkPtr running_;
  std::optional<Failure> failure_;
  std::uint64_t sequence_ = 0;
  bool stopping_ = false;
  std::atomic<bool> has_work_{false};
  std::thread thread_;
};

}  // namespace lockstep::comm::host
