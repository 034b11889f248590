#pragma once

#include <chrono>

#include <time.h>

namespace lockstep::testing {

/// Processor time that this thread has used. What it takes does not depend on what else runs on the
/// machine.
inline std::chrono::nanoseconds thread_cpu_time() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace lockstep::testing
