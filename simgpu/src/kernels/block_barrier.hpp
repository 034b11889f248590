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
  /// Who has come to it.
  struct Arrivals {
    std::array<unsigned, max_block_threads> waiting{};
    unsigned arrived = 0;
    int holds = 0;
    const void* place = nullptr;  ///< of the first that arrived
    Ballot result{};              ///< of the last barrier; the next one waits for all that read it
  };

  explicit BlockBarrier(ThreadScheduler& scheduler) : scheduler_(scheduler) {}

  /// The running thread waits for all threads of the block.
  /// @param place where in the kernel.
  /// @param on_passed is called once each time that all are there.
  template <class OnPassed>
  Ballot arrive(bool predicate, const void* place, const OnPassed& on_passed) {
    if (now_.arrived == 0)
      now_.place = place;
    else if (place != now_.place) [[unlikely]]
      found_barriers(now_.waiting[0], now_.place, place);
    now_.holds += predicate;
    if (now_.arrived + 1 == scheduler_.threads()) {
      on_passed();
      release(scheduler_.threads());
    } else {
      now_.waiting[now_.arrived++] = scheduler_.current();
      scheduler_.wait(ThreadState::at_barrier);
    }
    return now_.result;
  }

  /// Nobody waits any more.
  void forget() {
    now_.arrived = 0;
    now_.holds = 0;
  }

  /// Of the block that runs; another one's in their place.
  const Arrivals& arrivals() const { return now_; }
  void go_on_with(const Arrivals& arrivals) { now_ = arrivals; }

  /// Threads that wait.
  unsigned waiting() const { return now_.arrived; }

  /// Lets those that wait go on without the others. False if none wait.
  bool let_waiting_go() {
    if (now_.arrived == 0) return false;
    release(now_.arrived);
    return true;
  }

 private:
  void release(unsigned of) {
    now_.result = {now_.holds, static_cast<unsigned>(now_.holds) == of};
    for (unsigned i = 0; i < now_.arrived; ++i) scheduler_.make_ready(now_.waiting[i]);
    now_.arrived = 0;
    now_.holds = 0;
  }

  ThreadScheduler& scheduler_;
  Arrivals now_;
};

}  // namespace simgpu
