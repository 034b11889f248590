#pragma once

#include <fstream>
#include <string>

/// @file
/// Memory of this process, as the system counts it.

namespace lockstep::benchmark {

/// A field of /proc/self/status, in MB.
inline double memory_mb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kibibytes = 0; word == field + ":" && status >> kibibytes)
      return kibibytes * 1024 / 1e6;
  return 0;
}

/// From now on VmHWM is the most that the process has from now on.
inline void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

}  // namespace lockstep::benchmark
