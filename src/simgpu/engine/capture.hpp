#pragma once

#include <memory>
#include <thread>

#include "simgpu/engine/objects.hpp"
#include "simgpu/engine/operation.hpp"

/// @file
/// Calls that become nodes of a graph. All functions want the machine's mutex held.

namespace simgpu {

/// A capture, from cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
  std::unique_ptr<CUgraph_st> graph;
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  unsigned long long id = 0;
  cudaError_t invalid = cudaSuccess;  ///< why it cannot become a graph any more

  ~Capture();
};

/// Adds an operation to the graph that the stream captures.
cudaError_t capture_operation(CUstream_st& stream, Operation operation);

/// Invalidates the captures that a use of this stream outside of them would join without an event:
/// the legacy default stream would wait for capturing blocking streams.
cudaError_t check_implicit_capture(CUstream_st& stream);

/// For functions that are not allowed while something captures: invalidates the captures that the
/// calling thread's mode does not let it disturb. @return the error, cudaSuccess if there was none.
cudaError_t forbid_during_capture(const char* function);

/// The graph part of event record and wait.
void capture_record(CUevent_st& event, CUstream_st& stream);
cudaError_t capture_wait(CUstream_st& stream, CUevent_st& event);

/// The stream goes away: a capture that it takes part in cannot end well.
void leave_capture(CUstream_st& stream);

}  // namespace simgpu
