#include "comm/nccl/nccl_work.hpp"

#include <thread>

namespace lockstep::comm {

NcclWork::NcclWork(IntrusivePtr<NcclGroup> group, StreamRef stream, std::string description,
                   NcclGroup::Clock::time_point deadline)
    : group_(std::move(group)),
      done_(group_->device()),
      description_(std::move(description)),
      deadline_(deadline) {
  done_.record(stream);
}

void NcclWork::wait() {
  group_->raise_if_failed();
  done_.wait(current_stream(group_->device()));
}

// Polls: a host that blocks in the driver could not be woken by an abort.
void NcclWork::synchronize() {
  for (int polls = 0; !done_.query(); ++polls) {
    group_->raise_if_failed();
    if (polls < 1000)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  group_->raise_if_failed();
}

bool NcclWork::is_completed() const { return group_->has_failed() || done_.query(); }

std::exception_ptr NcclWork::exception() const {
  const auto failure = group_->failure();
  return failure ? failure->as_exception() : nullptr;
}

}  // namespace lockstep::comm
