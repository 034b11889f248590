#pragma once

#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// The edge that most of the planted faults lack.

namespace planted {

/// Lets what comes on `later` wait for what is on `earlier` now.
inline void order(lockstep::StreamRef earlier, lockstep::StreamRef later) {
  lockstep::Event event(earlier.device);
  event.record(earlier);
  event.wait(later);
}

}  // namespace planted
