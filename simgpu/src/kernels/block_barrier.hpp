#pragma once

#include <array>

#include "kernels/kernel_findings.hpp"
#include "kernels/thread_scheduler.hpp"
#include "simgpu/kernel_language.hpp"

/// @file
/// __syncthreads and its variants.

namespace simgpu {

/// The barrier of the block that runs.
class BlockBarrier {
 public:
  explicit BlockBarrier(ThreadScheduler& scheduler) : scheduler_(scheduler) {}

  /// The running thread waits for all threads of the block.
  /// @param place where in the kernel.
  /// @param on_passed is called once each time that all are there.
  template <class OnPassed>
  Ballot arrive(bool predicate, const void* place, const OnPassed& on_passed) {
    if (arrived_ == 0)
      place_ = place;
    else if (place != place_) [[unlikely]]
      found_barriers(waiting_[0], place_, place);
    holds_ += predicate;
    if (arrived_ + 1 == scheduler_.threads()) {
      on_passed();
      release(scheduler_.threads());
    } else {
      waiting_[arrived_++] = scheduler_.current();
      scheduler_.wait(ThreadState::at_barrier);
    }
    return result_;
  }

  /// Nobody waits any more.
  void forget() {
    arrived_ = 0;
    holds_ = 0;
  }

  /// Threads that wait.
  unsigned waiting() const { return arrived_; }

  /// Lets those that wait go on without the others. False if none wait.
  bool let_waiting_go() {
    if (arrived_ == 0) return false;
    release(arrived_);
    return true;
  }

 private:
  void release(unsigned of) {
    result_ = {holds_, static_cast<unsigned>(holds_) == of};
    for (unsigned i = 0; i < arrived_; ++i) scheduler_.make_ready(waiting_[i]);
    arrived_ = 0;
    holds_ = 0;
  }

  ThreadScheduler& scheduler_;
  std::array<unsigned, max_block_threads> waiting_{};
  unsigned arrived_ = 0;
  int holds_ = 0;
  const void* place_ = nullptr;  ///< of the first that arrived
  Ballot result_{};              ///< of the last barrier; the next one waits for all that read it
};

}  // namespace simgpu
