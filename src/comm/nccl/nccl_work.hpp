#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/nccl/nccl_group.hpp"
#include "comm/signature.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/runtime/event.hpp"

namespace lockstep::comm {

/// An operation, or a batch, on the communication stream, complete when its last event is reached.
class NcclWork final : public WorkState {
 public:
  /// Marks the present end of `stream` as its beginning.
  /// @param operations, of which the first is named in messages.
  NcclWork(IntrusivePtr<NcclGroup> group, StreamRef stream, std::span<const Operation> operations);

  /// Marks the present end of `stream` as its end; before anything else is asked.
  void finish(StreamRef stream) { done_.record(stream); }

  void wait() override;
  void synchronize() override;
  bool is_completed() const override;
  std::exception_ptr exception() const override;
  std::optional<WorkTimes> times() const override;

  /// What it is, for messages.
  std::string description() const;
  /// The number of the last collective in it; none for sends and receives.
  std::optional<std::uint64_t> collective() const { return collective_; }
  /// The ranks at the other end of its sends and receives.
  const std::vector<int>& partners() const { return partners_; }
  /// Lets it end sooner.
  void bring_deadline_forward(NcclGroup::Clock::time_point at) {
    deadline_ = std::min(deadline_, at);
  }
  /// True if it should have ended by now.
  bool is_overdue() const { return NcclGroup::Clock::now() > deadline_; }

 private:
  void raise_if_failed();

  IntrusivePtr<NcclGroup> group_;
  Event started_, done_;
  Signature first_;
  std::size_t operations_;
  std::optional<std::uint64_t> collective_;
  std::vector<int> partners_;
  WorkTimes::Clock::time_point submitted_;
  NcclGroup::Clock::time_point deadline_;
};

}  // namespace lockstep::comm
