#include "engine/capture.hpp"

#include <algorithm>
#include <utility>

#include "base/report.hpp"
#include "engine/graph.hpp"

namespace simgpu {
namespace {

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

// The rules of cudaThreadExchangeStreamCaptureMode.
bool forbids_unsafe_calls(const Capture& capture) {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
  if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return mode_of_thread == cudaStreamCaptureModeGlobal &&
         capture.mode == cudaStreamCaptureModeGlobal;
}

void add_all(std::vector<CUgraphNode_st*>& to, const std::vector<CUgraphNode_st*>& nodes) {
  for (CUgraphNode_st* node : nodes)
    if (std::find(to.begin(), to.end(), node) == to.end()) to.push_back(node);
}

}  // namespace

Capture::Capture() : graph(std::make_unique<CUgraph_st>()) {}
Capture::~Capture() = default;

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode) {
  return std::exchange(mode_of_thread, mode);
}

void invalidate(Capture& capture, const std::string& why) {
  capture.is_invalid = true;
  report(Finding::capture, "  " + why + " while " + capture.origin_name +
                               " captures a graph, which that makes impossible\n      at " +
                               describe(CallSite::here()));
}

cudaError_t capture_operation(CUstream_st& stream, Operation operation) {
  if (stream.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  CUgraphNode_st* const node =
      stream.capture->graph->add(std::move(operation), std::move(stream.frontier));
  node->priority = stream.priority;
  stream.frontier = {node};
  return cudaSuccess;
}

cudaError_t check_implicit_capture(CUstream_st& stream) {
  Machine& machine = Machine::instance();
  if (!stream.is_legacy || machine.captures.empty()) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  for (const CUstream_st* other : machine.streams_of(stream.device)) {
    if (other->capture == nullptr || !other->is_blocking()) continue;
    invalidate(*other->capture, "the legacy default stream is used, which would wait for it,");
    status = cudaErrorStreamCaptureImplicit;
  }
  return status;
}

cudaError_t forbid_during_capture(const char* function) {
  cudaError_t status = cudaSuccess;
  for (const auto& capture : Machine::instance().captures) {
    if (!forbids_unsafe_calls(*capture)) continue;
    if (!capture->is_invalid) invalidate(*capture, std::string(function) + " is called");
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

cudaError_t refuse_capturing(CUstream_st& stream) {
  if (!stream.capture->is_invalid)
    invalidate(*stream.capture, "the host asks whether the stream is done");
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t capture_record(CUevent_st& event, CUstream_st& stream) {
  event.capture = stream.capture;
  event.frontier = stream.frontier;
  event.task = nullptr;
  return cudaSuccess;
}

cudaError_t capture_external(CUstream_st& stream, EventsOfNode events) {
  const char* const name = events.records != nullptr ? "cudaEventRecord" : "cudaStreamWaitEvent";
  const cudaError_t status = capture_operation(stream, {.name = name, .site = CallSite::here()});
  if (status == cudaSuccess) stream.frontier.front()->events = events;
  return status;
}

cudaError_t capture_wait(CUstream_st& stream, CUevent_st& event) {
  if (event.capture == nullptr) {
    if (!event.is_recorded) return cudaSuccess;
    invalidate(*stream.capture, "a capturing stream waits for an event of work outside the graph");
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.capture->has_ended) return cudaErrorCapturedEvent;
  if (event.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.is_legacy) return cudaErrorStreamCaptureImplicit;
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    stream.frontier.clear();
  } else if (stream.capture != event.capture) {
    invalidate(*stream.capture, "a capturing stream waits for an event of another capture");
    event.capture->is_invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  add_all(stream.frontier, event.frontier);
  return cudaSuccess;
}

void leave_capture(CUstream_st& stream) {
  if (stream.capture == nullptr) return;
  invalidate(*stream.capture, "a stream that takes part is destroyed");
  if (stream.capture->origin == &stream) {
    stream.capture->has_ended = true;
    Machine::instance().captures.erase(stream.capture);
  }
}

}  // namespace simgpu
