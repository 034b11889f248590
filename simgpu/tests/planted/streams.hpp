#pragma once

#include <latch>

#include <cuda_runtime_api.h>

#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// The edge that most of the planted faults lack, and what makes their order certain.

namespace planted {

/// Lets what comes on `later` wait for what is on `earlier` now.
inline void order(lockstep::StreamRef earlier, lockstep::StreamRef later) {
  lockstep::Event event(earlier.device);
  event.record(earlier);
  event.wait(later);
}

/// What comes on a stream waits for the latch, which the caller opens.
inline void hold(lockstep::StreamRef stream, std::latch& until) {
  cudaLaunchHostFunc(
      static_cast<cudaStream_t>(stream.handle),
      [](void* latch) { static_cast<std::latch*>(latch)->wait(); }, &until);
}

}  // namespace planted
