#pragma once

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace lockstep::testing {

/// How many times longer than alone a job may take on this machine now: as many as there are
/// threads that wanted a core in the last minute for each core, at least 1.
inline double machine_load() {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return 1;
  return std::max(1.0, load / std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace lockstep::testing
