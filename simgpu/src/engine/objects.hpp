#pragma once

#include <memory>
#include <vector>

#include "cuda_runtime_api.h"
#include "engine/queue.hpp"

/// @file
/// What the handles of the runtime point to. Guarded by the machine's mutex.

namespace simgpu {
struct Capture;
}

struct CUgraphNode_st;

/// A stream.
struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool is_legacy = false;
  simgpu::Queue* queue = nullptr;
  std::shared_ptr<simgpu::Capture> capture;  ///< set while its calls become nodes of a graph
  std::vector<CUgraphNode_st*> frontier;     ///< nodes that the next one of the capture follows

  /// True if it takes part in the rules of the legacy default stream.
  bool is_blocking() const { return !is_legacy && (flags & cudaStreamNonBlocking) == 0; }
};

/// An event: a point of a stream's order.
struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  bool is_recorded = false;
  unsigned number = 0;           ///< among events, from 1
  std::uint64_t recordings = 0;  ///< so far
  simgpu::TaskPtr task;          ///< what must be done; null if nothing was to do
  std::int64_t queue = -1;       ///< number of the one where it was recorded
  simgpu::VirtualTime time = 0;
  simgpu::VectorClock clock;
  std::shared_ptr<simgpu::Capture> capture;  ///< recorded while capturing
  std::vector<CUgraphNode_st*> frontier;
};
