#pragma once

#include <chrono>
#include <string>

#include "comm/nccl/nccl_group.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/runtime/event.hpp"

namespace lockstep::comm {

/// An operation on the communication stream, complete when its event is reached.
class NcclWork final : public WorkState {
 public:
  /// Marks the present end of `stream`.
  NcclWork(IntrusivePtr<NcclGroup> group, StreamRef stream, std::string description,
           NcclGroup::Clock::time_point deadline);

  void wait() override;
  void synchronize() override;
  bool is_completed() const override;
  std::exception_ptr exception() const override;

  /// What it is, for messages.
  const std::string& description() const { return description_; }
  /// True if it should have ended by now.
  bool is_overdue() const { return NcclGroup::Clock::now() > deadline_; }

 private:
  IntrusivePtr<NcclGroup> group_;
  Event done_;
  std::string description_;
  NcclGroup::Clock::time_point deadline_;
};

}  // namespace lockstep::comm
