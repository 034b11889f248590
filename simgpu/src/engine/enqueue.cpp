#include "base/faults.hpp"
#include "engine/capture.hpp"
#include "engine/entry.hpp"
#include "engine/machine.hpp"

namespace simgpu {
namespace {

// The operation, and after it the error that was asked for.
void raise_after(Operation& operation, cudaError_t status) {
  operation.run = [run = std::move(operation.run), status] {
    if (run && !run()) return false;
    raise_sticky_error(status);
    return true;
  };
}

}  // namespace

cudaError_t enqueue(cudaStream_t handle, Operation operation) {
  const OwnLocks own;
  Machine& machine = Machine::instance();
  if (const cudaError_t sticky = machine.sticky_error; sticky != cudaSuccess) return sticky;
  if (const auto code = faults().on_launch())
    raise_after(operation, static_cast<cudaError_t>(*code));
  auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) return capture_operation(*stream, std::move(operation));
  if (const cudaError_t refused = check_implicit_capture(*stream); refused != cudaSuccess)
    return refused;
  const std::vector<Access> accesses = operation.accesses;
  const bool are_exact = !operation.accesses_are_bounds;
  std::vector<TaskPtr> after = machine.legacy_order(*stream);
  const TaskPtr task = machine.put(*stream->queue, std::move(operation), std::move(after), lock);
  lock.unlock();
  if (are_exact) machine.check_accesses(task->actor, accesses);
  machine.note_pinned(task->actor, accesses);
  return cudaSuccess;
}

}  // namespace simgpu
