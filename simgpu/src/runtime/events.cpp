#include <algorithm>

#include "base/leaks.hpp"
#include "engine/capture.hpp"
#include "engine/entry.hpp"
#include "engine/event_points.hpp"
#include "engine/graph.hpp"
#include "engine/host.hpp"
#include "engine/machine.hpp"
#include "memory/pinned_pages.hpp"

namespace simgpu {
namespace {

// A tick of the virtual clock counts as a microsecond.
constexpr float milliseconds_per_tick = 1e-3F;

// A record of a call that has to do with an event.
// @param queue of the stream that it is recorded on or waits; null where the host waits or asks.
void profile_event(const char* kind, const CUevent_st& event, const Queue* queue) {
  if (!profile::is_on()) return;
  profile::Fields fields;
  fields.add("kind", kind).add("name", RunningCall::name()).add("device", event.device);
  if (queue != nullptr) fields.add("stream", queue->number);
  if (queue == nullptr) fields.add("waits_for", "event");
  profile::write_now(fields.add("event", event.number).add("version", event.recordings));
}

cudaError_t create_event(cudaEvent_t* to, unsigned flags) {
  constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  const bool untimed = (flags & cudaEventDisableTiming) != 0;
  if (to == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
  if ((flags & cudaEventInterprocess) != 0 && !untimed) return cudaErrorInvalidValue;
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  CUevent_st& event = machine.create_event(current_device(), flags);
  object_created("event", &event);
  *to = &event;
  return cudaSuccess;
}

cudaError_t destroy_event(cudaEvent_t handle) {
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  CUevent_st* const event = machine.find(handle);
  if (event == nullptr) return cudaErrorInvalidResourceHandle;
  object_destroyed("event", event);
  machine.destroy_event(*event);
  return cudaSuccess;
}

/// @param is_external in a capture, launches of the graph record the event
cudaError_t record(cudaEvent_t handle, cudaStream_t stream_handle, bool is_external) {
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  CUevent_st* const event = machine.find(handle);
  CUstream_st* const stream = machine.find(stream_handle);
  if (event == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr)
    return is_external ? capture_external(*stream, {.records = event})
                       : capture_record(*event, *stream);
  if (is_external) return cudaErrorInvalidValue;
  if (const cudaError_t refused = check_implicit_capture(*stream); refused != cudaSuccess)
    return refused;
  Queue& queue = *stream->queue;
  std::vector<TaskPtr> after = machine.legacy_order(*stream);
  if (!after.empty())
    machine.put(queue, {.name = "cudaEventRecord"}, std::move(after), lock);
  else
    queue.clock.join(host_clock());
  record_point(*event, queue, machine.scheduler().now());
  profile_event("event_record", *event, &queue);
  return cudaSuccess;
}

/// @param is_external in a capture, launches of the graph wait for the event
cudaError_t wait(cudaStream_t stream_handle, cudaEvent_t handle, bool is_external) {
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  CUevent_st* const event = machine.find(handle);
  CUstream_st* const stream = machine.find(stream_handle);
  if (event == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (is_external)
    return stream->capture != nullptr ? capture_external(*stream, {.waits_for = event})
                                      : cudaErrorInvalidValue;
  if (event->capture != nullptr || stream->capture != nullptr) return capture_wait(*stream, *event);
  if (!event->is_recorded) return cudaSuccess;
  std::vector<TaskPtr> after = machine.legacy_order(*stream);
  follow_point(*event, *stream->queue, after);
  profile_event("stream_wait", *event, stream->queue);
  if (!after.empty())
    machine.put(*stream->queue, {.name = "cudaStreamWaitEvent"}, std::move(after), lock);
  return cudaSuccess;
}

// Other processes have no part in the virtual clock: what a collective waits for them counts apart,
// between events of its stream.
float milliseconds_waited_for_peers(const CUevent_st& start, const CUevent_st& end) {
  if (start.queue != end.queue || end.task == nullptr) return 0;
  std::chrono::duration<float, std::milli> waited = end.task->waited;
  if (start.task != nullptr) waited -= start.task->waited;
  return waited.count();
}

enum class Unfinished { is_waited_for, is_not_ready };

/// Orders the host behind what the event recorded.
cudaError_t catch_up(cudaEvent_t handle, Unfinished unfinished) {
  if (unfinished == Unfinished::is_waited_for) note_host_wait();
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  CUevent_st* const event = machine.find(handle);
  if (event == nullptr) return cudaErrorInvalidResourceHandle;
  if (event->capture != nullptr) return cudaErrorCapturedEvent;
  if (!event->is_recorded) return cudaSuccess;
  const VectorClock clock = event->clock;
  const TaskPtr task(event->task);
  if (unfinished == Unfinished::is_waited_for) {
    profile_event("host_wait", *event, nullptr);
    machine.scheduler().wait(task, lock);
  } else if (!machine.scheduler().is_done(task, lock)) {
    profile::answered_not_ready();
    return cudaErrorNotReady;
  } else {
    profile_event(profile::take_polls() > 0 ? "host_wait" : "query", *event, nullptr);
  }
  host_clock().join(clock);
  lock.unlock();
  open_ordered_pages();
  return machine.sticky_error;
}

cudaError_t elapsed(float* milliseconds, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  const CUevent_st* const start = machine.find(start_handle);
  const CUevent_st* const end = machine.find(end_handle);
  if (milliseconds == nullptr) return cudaErrorInvalidValue;
  if (start == nullptr || end == nullptr) return cudaErrorInvalidResourceHandle;
  const bool timed = ((start->flags | end->flags) & cudaEventDisableTiming) == 0;
  if (!timed || !start->is_recorded || !end->is_recorded || start->device != end->device)
    return cudaErrorInvalidResourceHandle;
  const float ticks = static_cast<float>(end->time) - static_cast<float>(start->time);
  for (const TaskPtr& task : {TaskPtr(start->task), TaskPtr(end->task)})
    if (!machine.scheduler().is_done(task, lock)) return cudaErrorNotReady;
  *milliseconds = ticks * milliseconds_per_tick + milliseconds_waited_for_peers(*start, *end);
  return cudaSuccess;
}

}  // namespace
}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;
using simgpu::Unfinished;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  static EntryPoint entry("cudaEventCreate");
  return entry.call([&] { return simgpu::create_event(event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  static EntryPoint entry("cudaEventCreateWithFlags");
  return entry.call([&] { return simgpu::create_event(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  static EntryPoint entry("cudaEventDestroy", Allowed::always);
  return entry.call([&] { return simgpu::destroy_event(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  static EntryPoint entry("cudaEventRecord");
  return entry.call([&] { return simgpu::record(event, stream, false); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  static EntryPoint entry("cudaEventRecordWithFlags");
  return entry.call([&] {
    const bool is_external = flags == cudaEventRecordExternal;
    if (!is_external && flags != cudaEventRecordDefault) return cudaErrorInvalidValue;
    return simgpu::record(event, stream, is_external);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  static EntryPoint entry("cudaStreamWaitEvent");
  return entry.call([&] {
    const bool is_external = flags == cudaEventWaitExternal;
    if (!is_external && flags != cudaEventWaitDefault) return cudaErrorInvalidValue;
    return simgpu::wait(stream, event, is_external);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  static EntryPoint entry("cudaEventQuery", Allowed::not_capturing);
  return entry.call([&] { return simgpu::catch_up(event, Unfinished::is_not_ready); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  static EntryPoint entry("cudaEventSynchronize", Allowed::not_capturing);
  return entry.call([&] { return simgpu::catch_up(event, Unfinished::is_waited_for); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  static EntryPoint entry("cudaEventElapsedTime");
  return entry.call([&] { return simgpu::elapsed(milliseconds, start, end); });
}

}  // extern "C"
