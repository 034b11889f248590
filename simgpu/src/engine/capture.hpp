#pragma once

#include <memory>
#include <string>
#include <thread>

#include "engine/objects.hpp"
#include "engine/operation.hpp"

/// @file
/// Calls that become nodes of a graph. All functions want the machine's mutex held.

namespace simgpu {

struct EventsOfNode;

/// A capture, from cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
  std::unique_ptr<CUgraph_st> graph;
  const CUstream_st* origin = nullptr;
  std::string origin_name;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  unsigned long long id = 0;
  bool is_invalid = false;  ///< cannot become a graph any more
  bool has_ended = false;

  Capture();
  ~Capture();
};

/// Says what makes a capture impossible, and invalidates it.
void invalidate(Capture& capture, const std::string& why);

/// Sets how the calling thread treats captures. @return what was set before.
cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);

/// Adds an operation to the graph that the stream captures.
cudaError_t capture_operation(CUstream_st& stream, Operation operation);

/// The legacy default stream must not be used while blocking streams capture, for it would wait for
/// them: invalidates their captures. @return the error, cudaSuccess if there was none.
cudaError_t check_implicit_capture(CUstream_st& stream);

/// For functions that are not allowed while something captures: invalidates the captures that the
/// calling thread's mode does not let it disturb. @return the error, cudaSuccess if there was none.
cudaError_t forbid_during_capture(const char* function);

/// A query or synchronisation of a capturing stream: invalidates the capture. @return the error.
cudaError_t refuse_capturing(CUstream_st& stream);

/// The graph part of event record and wait.
cudaError_t capture_record(CUevent_st& event, CUstream_st& stream);
cudaError_t capture_wait(CUstream_st& stream, CUevent_st& event);
/// A node at which launches of the graph record an event or wait for one.
cudaError_t capture_external(CUstream_st& stream, EventsOfNode events);

/// The stream goes away: a capture that it takes part in cannot end well.
void leave_capture(CUstream_st& stream);

}  // namespace simgpu
