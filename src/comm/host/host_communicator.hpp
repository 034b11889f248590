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
#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm::host {

/// A communicator on host memory over any transport. Operations queue up and run on a progress
/// thread of the communicator's own, because neither MPI nor sockets move data by themselves while
/// the caller computes.
class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::unique_ptr<Transport> transport, std::string name,
                   const CommunicatorOptions& options);
  ~HostCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Device device() const override { return cpu; }
  std::string_view backend() const override { return transport_->backend(); }
  const std::string& name() const override { return name_; }

  Work all_reduce(Buffer buffer, Reduction reduction, const CollectiveOptions& options) override;
  Work reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                      std::span<const std::int64_t> counts,
                      const CollectiveOptions& options) override;
  Work all_gather(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts,
                  const CollectiveOptions& options) override;
  Work broadcast(Buffer buffer, int root, const CollectiveOptions& options) override;
  Work all_to_all(ConstBuffer input, Buffer output, const CollectiveOptions& options) override;
  Work send(ConstBuffer buffer, int to, const CollectiveOptions& options) override;
  Work receive(Buffer buffer, int from, const CollectiveOptions& options) override;
  Work barrier(const CollectiveOptions& options) override;
  CommunicatorPtr split(int color, int key) override;
  void abort(const std::string& reason) noexcept override;
  std::string describe_progress() const override;

 private:
  using WorkPtr = IntrusivePtr<HostWork>;

  Work submit(Operation operation, const CollectiveOptions& options);
  void progress();
  WorkPtr next();
  void execute(HostWork& work);
  std::optional<Failure> failure_of(const Operation& operation);
  void fail(const Failure& failure);
  std::string context(const Operation& operation) const;

  std::unique_ptr<Transport> transport_;
  const int rank_, size_;
  const std::string name_;
  const CommunicatorOptions options_;
  Collectives collectives_;
  std::uint64_t splits_ = 0;

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
