#pragma once

#include "lockstep/parallel/trace.hpp"

namespace lockstep::parallel {

/// A time of a trace in seconds.
inline double seconds(TraceClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace lockstep::parallel
