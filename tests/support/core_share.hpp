#pragma once

#include <chrono>
#include <ctime>
#include <thread>

namespace lockstep::testing {

/// Processor time that all threads of this process take in a second in which the calling one
/// sleeps, as a share of one core.
inline double core_share_of_idling() {
  const auto seconds_on_cores = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double before = seconds_on_cores();
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::chrono::duration<double> idle = std::chrono::steady_clock::now() - begin;
  return (seconds_on_cores() - before) / idle.count();
}

}  // namespace lockstep::testing
