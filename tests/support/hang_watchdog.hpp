#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "support/timeout_multiplier.hpp"

namespace lockstep::testing {

/// Ends a test process that hangs, after every rank has had the time to say what it was doing.
class HangWatchdog {
 public:
  /// @param limit for the whole process, times the build's timeout multiplier.
  /// @param describe says what this rank is doing; called from the watchdog's thread.
  HangWatchdog(std::chrono::seconds limit, std::function<std::string()> describe)
      : describe_(std::move(describe)),
        thread_([this, limit] { watch(limit * timeout_multiplier); }) {}
  HangWatchdog(const HangWatchdog&) = delete;
  HangWatchdog& operator=(const HangWatchdog&) = delete;
  ~HangWatchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void watch(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [&] { return done_; })) return;
    std::fprintf(stderr, "hang after %lld s: %s\n", static_cast<long long>(limit.count()),
                 describe_().c_str());
    std::this_thread::sleep_for(std::chrono::seconds(2));  // the other ranks speak too
    std::abort();
  }

  std::function<std::string()> describe_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace lockstep::testing
