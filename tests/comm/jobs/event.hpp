#pragma once

#include <chrono>
#include <cstdio>

namespace lockstep::testing {

/// Says that it happens now: tests measure from there how soon the job ends.
inline void note_event() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf(
      "event at %lld ms\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  std::fflush(stdout);
}

}  // namespace lockstep::testing
