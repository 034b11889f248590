#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "comm/nccl/nccl_group.hpp"
#include "comm/nccl/nccl_work.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::comm {

/// A communicator over NCCL. Operations run on a high-priority stream of their own, ordered after
/// the caller's stream and before whatever waits for their Work. A monitor thread turns NCCL's
/// background errors and overdue operations into failures and aborts the group.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(IntrusivePtr<NcclGroup> group, std::string name,
                   const CommunicatorOptions& options);
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Device device() const override { return group_->device(); }
  std::string_view backend() const override { return "nccl"; }
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
  using WorkPtr = IntrusivePtr<NcclWork>;
  using Body = FunctionRef<ncclResult_t(ncclComm_t, cudaStream_t)>;

  Work submit(const char* call, std::int64_t count, DType dtype, const CollectiveOptions& options,
              Body body);
  void monitor();
  void check_in_flight();

  IntrusivePtr<NcclGroup> group_;
  const int rank_, size_;
  const std::string name_;
  const CommunicatorOptions options_;
  Stream stream_;
  MemoryBlock* barrier_block_;
  std::uint64_t sequence_ = 0, splits_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::deque<WorkPtr> in_flight_;
  std::thread monitor_;
};

}  // namespace lockstep::comm
