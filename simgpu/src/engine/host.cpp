#include "engine/host.hpp"

#include <atomic>

#include "base/host_waits.hpp"
#include "engine/entry.hpp"
#include "engine/machine.hpp"
#include "memory/address_space.hpp"
#include "memory/pinned_pages.hpp"

namespace simgpu {
namespace {

// Waits for all that is in a stream, and what the default stream's rules put before it.
void wait_for(Machine& machine, CUstream_st& stream, Machine::Lock& lock) {
  Queue& queue = *stream.queue;
  if (stream.is_legacy)
    for (const TaskPtr& task : machine.legacy_order(stream)) machine.scheduler().wait(task, lock);
  const TaskPtr last = queue.last;
  const VectorClock clock = queue.clock;  // the queue may end while we wait
  machine.scheduler().wait(last, lock);
  host_clock().join(clock);
}

// A record of a call in which the host waits for all that a device or a stream has to do.
void profile_wait(const char* waits_for, int device, const Queue* queue) {
  if (!profile::is_on()) return;
  profile::Fields fields;
  fields.add("kind", "host_wait").add("name", RunningCall::name()).add("device", device);
  if (queue != nullptr) fields.add("stream", queue->number);
  profile::write_now(fields.add("waits_for", waits_for));
}

cudaError_t wait_for_stream(cudaStream_t handle, bool is_recorded) {
  note_host_wait();
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (is_recorded) profile_wait("stream", stream->device, stream->queue);
  wait_for(machine, *stream, lock);
  lock.unlock();
  open_ordered_pages();
  return machine.sticky_error;
}

}  // namespace

void note_host_wait() { note_host_wait(RunningCall::name()); }

std::uint64_t next_call_number() {
  static std::atomic<std::uint64_t> numbers{0};
  return ++numbers;
}

cudaError_t device_of_stream(cudaStream_t handle, int* device) {
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  const CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  *device = stream->device;
  return cudaSuccess;
}

bool is_capturing(cudaStream_t handle) {
  Machine& machine = Machine::instance();
  const auto lock = machine.lock();
  const CUstream_st* const stream = machine.find(handle);
  return stream != nullptr && stream->capture != nullptr;
}

cudaError_t synchronize_stream(cudaStream_t stream) { return wait_for_stream(stream, true); }
cudaError_t run_out(cudaStream_t handle) {
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  const CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  machine.scheduler().wait(stream->queue->last, lock);
  return machine.sticky_error;
}
cudaError_t await_copy(cudaStream_t stream) { return wait_for_stream(stream, false); }

cudaError_t synchronize_device(int device) {
  note_host_wait();
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  std::vector<std::pair<TaskPtr, VectorClock>> ends;
  profile_wait("device", device, nullptr);
  const Machine::Ends gone = machine.ends_of_gone(device);
  for (const TaskPtr& task : gone.tasks) ends.emplace_back(task, gone.clock);
  ends.emplace_back(nullptr, gone.clock);
  for (const CUstream_st* stream : machine.streams_of(device))
    ends.emplace_back(stream->queue->last, stream->queue->clock);
  for (const auto& [last, clock] : ends) {
    machine.scheduler().wait(last, lock);
    host_clock().join(clock);
  }
  lock.unlock();
  open_ordered_pages();
  check_guards(device);
  return machine.sticky_error;
}

}  // namespace simgpu
