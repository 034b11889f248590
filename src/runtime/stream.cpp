#include "lockstep/runtime/stream.hpp"

#include <array>

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "runtime/background_failure.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {
namespace {

constexpr int max_devices = 64;

/// What guards say of a thread's stream for one device.
struct Choice {
  void* handle = nullptr;
  bool is_made = false;
};
thread_local std::array<Choice, max_devices> choices{};

Choice& choice_of(Device device) {
  LOCKSTEP_CHECK(device.index >= 0 && device.index < max_devices, InvalidArgument, "device ",
                 device, " is out of range: indices go from 0 to ", max_devices - 1);
  return choices.at(static_cast<std::size_t>(device.index));
}

}  // namespace

Stream::Stream(Device device, StreamPriority priority)
    : stream_(device_runtime(device.type).create_stream(device, priority)) {}

// One that takes part in a capture does so to the capture's end: until then nobody else may have
// it.
Stream::~Stream() {
  if (!stream_.handle) return;
  const auto give_back = [stream = stream_] {
    device_runtime(stream.device.type).destroy_stream(stream);
  };
  StepRecording* const recording = StepRecording::on(stream_.device);
  if (!recording) {
    give_back();
    return;
  }
  try {
    recording->at_end(give_back);
  } catch (...) {
    // No host memory is left: the stream is not used again.
  }
}

void Stream::synchronize() const { lockstep::synchronize(stream_); }

StreamRef default_stream(Device device) {
  return device_runtime(device.type).default_stream(device);
}

StreamRef current_stream(Device device) {
  if (device.is_cpu()) return {};
  const Choice& choice = choice_of(device);
  return choice.is_made ? StreamRef{device, choice.handle} : default_stream(device);
}

StreamGuard::StreamGuard(StreamRef stream) : previous_{stream.device} {
  if (stream.device.is_cpu()) return;
  Choice& choice = choice_of(stream.device);
  previous_.handle = choice.handle;
  was_chosen_ = choice.is_made;
  choice = {stream.handle, true};
}

StreamGuard::~StreamGuard() {
  if (previous_.device.is_cuda()) choice_of(previous_.device) = {previous_.handle, was_chosen_};
}

constexpr const char* read_later =
    "return the tensor, and read it after the step (HostCopy without waiting)";

// What the host waits for it goes on to read: not after a collective failed that nobody waited for.
void synchronize(StreamRef stream) {
  refuse_in_captured_step("the host waits for a device", read_later);
  device_runtime(stream.device.type).synchronize(stream);
  if (stream.device.is_cuda()) raise_background_failure();
}

Event::Event(Device device, bool timing)
    : device_(device), handle_(device_runtime(device.type).create_event(device, timing)) {}

Event::~Event() {
  if (handle_) device_runtime(device_.type).destroy_event(device_, handle_);
}

void Event::record(StreamRef stream) {
  device_runtime(device_.type).record_event(handle_, stream);
  recorded_ = true;
}

// The handle of an event that is not recorded may still have the mark of its former user.
void Event::wait(StreamRef stream) const {
  if (recorded_) device_runtime(device_.type).wait_event(handle_, stream);
}

bool Event::query() const {
  refuse_in_captured_step("an event is queried", read_later);
  return !recorded_ || device_runtime(device_.type).query_event(handle_);
}

void Event::synchronize() const {
  refuse_in_captured_step("the host waits for an event", read_later);
  if (recorded_) device_runtime(device_.type).synchronize_event(handle_);
  if (device_.is_cuda()) raise_background_failure();
}

float Event::elapsed_ms(const Event& later) const {
  LOCKSTEP_CHECK(recorded_ && later.recorded_, InvalidArgument, "elapsed_ms: the ",
                 recorded_ ? "later" : "earlier", " event was never recorded; record() both first");
  return device_runtime(device_.type).elapsed_ms(handle_, later.handle_);
}

}  // namespace lockstep
