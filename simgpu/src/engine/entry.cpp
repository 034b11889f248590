#include "engine/entry.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/coverage.hpp"
#include "base/faults.hpp"
#include "base/options.hpp"
#include "engine/capture.hpp"
#include "engine/machine.hpp"

namespace simgpu {
namespace {

std::atomic<const EntryPoint*> newest_entry_point = nullptr;
thread_local cudaError_t last_error = cudaSuccess;

/// True for a function that asks for what a machine without devices does not have.
bool needs_device(std::string_view name) {
  constexpr std::string_view others[] = {"cudaGetDeviceCount", "cudaDriverGetVersion",
                                         "cudaRuntimeGetVersion"};
  return std::find(std::begin(others), std::end(others), name) == std::end(others);
}

}  // namespace

EntryPoint::EntryPoint(const char* name, Allowed allowed) : name_(name), allowed_(allowed) {
  next_ = newest_entry_point.load();
  while (!newest_entry_point.compare_exchange_weak(next_, this)) {
  }
}

const EntryPoint* first_entry_point() { return newest_entry_point; }

std::optional<int> EntryPoint::enter(bool is_runtime) {
  if (calls_.fetch_add(1, std::memory_order_relaxed) == 0) cover_call(name_);
  if (is_runtime && allowed_ != Allowed::always && options().devices == 0 && needs_device(name_))
    return cudaErrorNoDevice;
  if (on_executor()) return is_runtime ? std::optional<int>(cudaErrorNotPermitted) : std::nullopt;
  Machine& machine = Machine::instance();
  {
    const auto lock = machine.lock();
    machine.scheduler().tick();
    if (is_runtime && allowed_ == Allowed::not_capturing) {
      const cudaError_t forbidden = forbid_during_capture(name_);
      if (forbidden != cudaSuccess) return forbidden;
    }
  }
  if (const std::optional<int> fault = faults().on_call(name_)) return fault;
  if (is_runtime && allowed_ != Allowed::always && machine.sticky_error != cudaSuccess)
    return machine.sticky_error.load();
  return std::nullopt;
}

cudaError_t EntryPoint::finish(cudaError_t status) {
  note_error(status);
  return status;
}

void note_error(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
}

cudaError_t noted_error() { return last_error; }

void clear_noted_error() { last_error = cudaSuccess; }

void raise_sticky_error(cudaError_t status) {
  cudaError_t none = cudaSuccess;
  Machine::instance().sticky_error.compare_exchange_strong(none, status);
}

void forget_sticky_error() { Machine::instance().sticky_error = cudaSuccess; }

bool has_sticky_error() { return Machine::instance().sticky_error != cudaSuccess; }

}  // namespace simgpu
