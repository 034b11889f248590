#include "engine/capture.hpp"

#include "base/leaks.hpp"
#include "engine/entry.hpp"
#include "engine/graph.hpp"

namespace simgpu {
namespace {

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  static unsigned long long ids = 0;
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->is_legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->origin_name = stream->queue->name;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->id = ++ids;
  machine.captures.insert(capture);
  stream->capture = std::move(capture);
  stream->frontier.clear();
  return cudaSuccess;
}

// True if all that was captured comes before what the origin would do next.
bool is_joined(const Capture& capture) {
  std::set<const CUgraphNode_st*> open;
  for (const auto& node : capture.graph->nodes) open.insert(node.get());
  for (const auto& node : capture.graph->nodes)
    for (const CUgraphNode_st* before : node->after) open.erase(before);
  for (const CUgraphNode_st* node : capture.origin->frontier) open.erase(node);
  return open.empty();
}

void end_for_all_streams(Machine& machine, const std::shared_ptr<Capture>& capture) {
  for (int device = 0; device < options().devices; ++device)
    for (CUstream_st* stream : machine.streams_of(device))
      if (stream->capture == capture) {
        stream->capture = nullptr;
        stream->frontier.clear();
      }
  capture->has_ended = true;
  machine.captures.erase(capture);
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (graph == nullptr) return cudaErrorInvalidValue;
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const bool joined = capture->is_invalid || is_joined(*capture);
  if (!joined) invalidate(*capture, "the capture ends before a stream that it forked has joined");
  end_for_all_streams(machine, capture);
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  *graph = capture->graph.release();
  object_created("graph", *graph);
  return cudaSuccess;
}

cudaStreamCaptureStatus status_of(const CUstream_st& stream) {
  if (stream.capture == nullptr) return cudaStreamCaptureStatusNone;
  return stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
}

/// The stream of a handle, and whether it captures. The machine is locked.
cudaError_t look_up_capture(cudaStream_t handle, CUstream_st** stream,
                            cudaStreamCaptureStatus* status) {
  *stream = Machine::instance().find(handle);
  if (*stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (status == nullptr) return cudaErrorInvalidValue;
  *status = status_of(**stream);
  return cudaSuccess;
}

}  // namespace
}  // namespace simgpu

using simgpu::EntryPoint;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  static EntryPoint entry("cudaStreamBeginCapture");
  return entry.call([&] { return simgpu::begin(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  static EntryPoint entry("cudaStreamEndCapture");
  return entry.call([&] { return simgpu::end(stream, graph); });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  static EntryPoint entry("cudaStreamGetCaptureInfo");
  return entry.call([&] {
    const auto lock = simgpu::Machine::instance().lock();
    CUstream_st* found = nullptr;
    if (const auto refused = simgpu::look_up_capture(stream, &found, status);
        refused != cudaSuccess)
      return refused;
    if (edges != nullptr) *edges = nullptr;
    if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
    if (id != nullptr) *id = found->capture->id;
    if (graph != nullptr) *graph = found->capture->graph.get();
    if (dependencies != nullptr) *dependencies = found->frontier.data();
    if (count != nullptr) *count = found->frontier.size();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  static EntryPoint entry("cudaStreamIsCapturing");
  return entry.call([&] {
    const auto lock = simgpu::Machine::instance().lock();
    CUstream_st* found = nullptr;
    return simgpu::look_up_capture(stream, &found, status);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static EntryPoint entry("cudaThreadExchangeStreamCaptureMode");
  return entry.call([&] {
    if (mode == nullptr) return cudaErrorInvalidValue;
    *mode = simgpu::exchange_capture_mode(*mode);
    return cudaSuccess;
  });
}

}  // extern "C"
