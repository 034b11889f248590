#pragma once

#include <atomic>
#include <thread>

/// @file
/// A lock for a few instructions, which hardly ever finds another holder.

namespace lockstep::detail {

/// Half the cost of a std::mutex where nobody else holds it. Whoever waits gives up its core.
class SpinLock {
 public:
  void lock() noexcept {
    while (held_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace lockstep::detail
