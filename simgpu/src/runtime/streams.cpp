#include <algorithm>

#include "base/leaks.hpp"
#include "engine/capture.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "engine/machine.hpp"
#include "memory/pinned_pages.hpp"
#include "runtime/device.hpp"

namespace simgpu {
namespace {

cudaError_t create_stream(cudaStream_t* to, unsigned flags, int priority) {
  if (to == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0)
    return cudaErrorInvalidValue;
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  CUstream_st& stream = machine.create_stream(
      current_device(), flags, std::clamp(priority, greatest_priority, least_priority));
  object_created("stream", &stream, stream.queue->name);
  *to = &stream;
  return cudaSuccess;
}

bool is_special(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

cudaError_t destroy_stream(cudaStream_t handle) {
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr || is_special(handle)) return cudaErrorInvalidResourceHandle;
  leave_capture(*stream);
  object_destroyed("stream", stream);
  machine.destroy_stream(*stream);
  return cudaSuccess;
}

cudaError_t query_stream(cudaStream_t handle) {
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) return refuse_capturing(*stream);
  std::vector<TaskPtr> awaited;
  if (stream->is_legacy) awaited = machine.legacy_order(*stream);
  awaited.push_back(stream->queue->last);
  const VectorClock clock = stream->queue->clock;
  const int device = stream->device;
  const unsigned number = stream->queue->number;
  for (const TaskPtr& task : awaited)
    if (!machine.scheduler().is_done(task, lock)) {
      profile::answered_not_ready();
      return cudaErrorNotReady;
    }
  if (profile::is_on())
    profile::write_now(profile::Fields()
                           .add("kind", profile::take_polls() > 0 ? "host_wait" : "query")
                           .add("name", RunningCall::name())
                           .add("device", device)
                           .add("stream", number)
                           .add("waits_for", "stream"));
  host_clock().join(clock);
  lock.unlock();
  open_ordered_pages();
  return machine.sticky_error;
}

// Calls `use` with the stream of a handle.
template <class Use>
cudaError_t with_stream(cudaStream_t handle, Use use) {
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  use(*stream);
  return cudaSuccess;
}

}  // namespace
}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  static EntryPoint entry("cudaStreamCreate");
  return entry.call([&] { return simgpu::create_stream(stream, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  static EntryPoint entry("cudaStreamCreateWithFlags");
  return entry.call([&] { return simgpu::create_stream(stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  static EntryPoint entry("cudaStreamCreateWithPriority");
  return entry.call([&] { return simgpu::create_stream(stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  static EntryPoint entry("cudaStreamDestroy", Allowed::always);
  return entry.call([&] { return simgpu::destroy_stream(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  static EntryPoint entry("cudaStreamSynchronize", Allowed::not_capturing);
  return entry.call([&] { return simgpu::synchronize_stream(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  static EntryPoint entry("cudaStreamQuery");
  return entry.call([&] { return simgpu::query_stream(stream); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  static EntryPoint entry("cudaStreamGetPriority");
  return entry.call([&] {
    if (priority == nullptr) return cudaErrorInvalidValue;
    return simgpu::with_stream(stream, [&](CUstream_st& of) { *priority = of.priority; });
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  static EntryPoint entry("cudaStreamGetFlags");
  return entry.call([&] {
    if (flags == nullptr) return cudaErrorInvalidValue;
    return simgpu::with_stream(stream, [&](CUstream_st& of) { *flags = of.flags; });
  });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  static EntryPoint entry("cudaStreamGetId");
  return entry.call([&] {
    if (id == nullptr) return cudaErrorInvalidValue;
    return simgpu::with_stream(stream, [&](CUstream_st& of) { *id = of.queue->number; });
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  static EntryPoint entry("cudaStreamGetDevice");
  return entry.call([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    return simgpu::with_stream(stream, [&](CUstream_st& of) { *device = of.device; });
  });
}

}  // extern "C"
