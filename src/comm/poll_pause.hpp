#pragma once

#include <chrono>
#include <thread>

namespace lockstep::comm {

/// The pauses of one wait that polls. A short wait yields, to end soon after what it waits for; a
/// longer one sleeps: where other work wants the core, a yield costs that work's whole time slice.
class PollPause {
 public:
  void pause() {
    if (Clock::now() < sleeps_from_)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point sleeps_from_ = Clock::now() + std::chrono::microseconds(300);
};

}  // namespace lockstep::comm
