#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/core/macros.hpp"

/// @file
/// A lock for a few instructions, which hardly ever finds another holder.

namespace lockstep::detail {

/// Half the cost of a std::mutex where nobody else holds it: to unlock is a plain store. Whoever
/// waits gives up its core, and sleeps where the holder takes long, as one that waits for a driver.
class SpinLock {
 public:
  void lock() noexcept {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  LOCKSTEP_COLD void wait() noexcept {
    constexpr int yields = 100;
    int tries = 0;
    do {
      if (++tries <= yields)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    } while (held_.load(std::memory_order_relaxed) ||
             held_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> held_{false};
};

}  // namespace lockstep::detail
