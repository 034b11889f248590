#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/nccl/nccl_group.hpp"
#include "comm/nccl/nccl_work.hpp"
#include "comm/operation_communicator.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::comm {

/// A communicator over NCCL. Operations run on a high-priority stream of their own, ordered after
/// the caller's stream and before whatever waits for their Work. A monitor thread turns NCCL's
/// background errors and overdue operations into failures and aborts the group, and lets the job
/// compare what its ranks call.
class NcclCommunicator final : public OperationCommunicator {
 public:
  NcclCommunicator(IntrusivePtr<NcclGroup> group, std::string name,
                   const CommunicatorOptions& options, ComparisonPtr comparison);
  ~NcclCommunicator() override;

  Device device() const override { return group_->device(); }
  std::string_view backend() const override { return "nccl"; }
  CommunicatorPtr split(int color, int key) override;
  void abort(const std::string& reason) noexcept override;
  std::string describe_progress() const override;

 private:
  using WorkPtr = IntrusivePtr<NcclWork>;

  Work submit(Operation operation) override;
  void tell(const Signature& signature);
  void monitor() noexcept;
  void watch();
  void check_in_flight();

  IntrusivePtr<NcclGroup> group_;
  ComparisonPtr comparison_;
  Stream stream_;
  MemoryBlock* barrier_block_;
  std::uint64_t sequence_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::deque<WorkPtr> in_flight_;
  std::thread monitor_;
};

}  // namespace lockstep::comm
