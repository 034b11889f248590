#pragma once

#include <optional>
#include <vector>

#include "comm/communicator_backend.hpp"
#include "comm/operation.hpp"
#include "lockstep/comm/work.hpp"

namespace lockstep::comm {

/// Work of a batch, from before it starts.
class BatchWork final : public WorkState {
 public:
  void start(Work work) { work_ = std::move(work); }

  void wait() override { started().wait(); }
  void synchronize() override { started().synchronize(); }
  bool is_completed() const override { return work_ && work_->is_completed(); }
  std::exception_ptr exception() const override { return work_ ? work_->exception() : nullptr; }
  std::optional<WorkTimes> times() const override { return work_ ? work_->times() : std::nullopt; }
  void release_memory() noexcept override {
    if (work_) work_->release_memory();
  }

 private:
  const Work& started() const;

  std::optional<Work> work_;
};

/// Operations that shall start as one, while their calls are being made.
class Batch {
 public:
  /// Takes one more; the result stands for the whole batch.
  Work add(Operation operation);
  /// All that was added, or will be.
  Work work() const { return Work(work_); }
  /// Hands all to the backend.
  Work start(CommunicatorBackend& backend);

 private:
  std::vector<Operation> operations_;
  IntrusivePtr<BatchWork> work_ = make_intrusive<BatchWork>();
};

}  // namespace lockstep::comm
