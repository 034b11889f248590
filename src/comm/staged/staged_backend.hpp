#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "comm/communicator_backend.hpp"
#include "comm/failure.hpp"
#include "comm/staged/staged_work.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::comm::staged {

/// A backend for buffers on a GPU over one for buffers on the host: operations go through
/// page-locked memory. The caller queues the copies to the host, behind what its stream holds; a
/// worker thread has them exchanged, one after the other, and queues the copies back. So copies to
/// the host go on beside the exchange of earlier operations; where one reads what an earlier one
/// writes, the worker queues them. Times begin when the copies are there. Failures, time limits of
/// the exchange, and ranks that leave are the other backend's business.
class StagedBackend final : public CommunicatorBackend {
 public:
  /// @param host of the same ranks; nobody else uses it.
  StagedBackend(Device device, std::unique_ptr<CommunicatorBackend> host);
  /// Lets what is queued end, for as long as the options say; then it aborts the group.
  ~StagedBackend() override;

  Device device() const override { return device_; }
  std::string_view kind() const override { return kind_; }
  Work submit(std::span<Operation> operations) override;
  std::unique_ptr<CommunicatorBackend> split(const SplitPlan& plan) override;
  void declare(std::uint64_t subject, const std::string& end) override;
  void abort(const std::string& reason) noexcept override;
  std::string describe_progress() const override;

 private:
  using WorkPtr = IntrusivePtr<StagedWork>;

  bool reads_what_is_on_its_way(const StagedWork& work) const;
  void leave() noexcept;
  void drain();
  bool is_under_way() const;

  void run();
  WorkPtr next();
  void carry_out(StagedWork& work);
  bool wait_for_device(StagedWork& work);
  bool has_group_failed();
  bool exchange(StagedWork& work);
  bool copy_back(StagedWork& work);
  void fail(const Failure& failure) noexcept;
  bool note_failure(const Failure& failure) noexcept;
  std::optional<Failure> failure() const;
  std::string context(const StagedWork& work) const;

  const Device device_;
  const std::string kind_;
  std::unique_ptr<CommunicatorBackend> host_;
  Stream to_host_, to_device_;
  std::uint64_t sequence_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_, progressed_;
  std::deque<WorkPtr> queue_;
  WorkPtr running_;
  std::optional<Failure> failure_;
  std::atomic<bool> has_failed_{false};
  std::uint64_t ended_ = 0;
  bool stopping_ = false;
  std::once_flag left_;
  std::thread worker_;
};

}  // namespace lockstep::comm::staged
