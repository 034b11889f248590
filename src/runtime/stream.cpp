#include "lockstep/runtime/stream.hpp"

#include <array>

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep {
namespace {

constexpr int max_devices = 64;

// The current stream of each device, per thread. Null handles are the default streams.
thread_local std::array<void*, max_devices> current_streams{};

void*& current_handle(Device device) {
  LOCKSTEP_CHECK(device.index >= 0 && device.index < max_devices, InvalidArgument, "device ",
                 device, " is out of range: indices go from 0 to ", max_devices - 1);
  return current_streams.at(static_cast<std::size_t>(device.index));
}

}  // namespace

Stream::Stream(Device device, StreamPriority priority)
    : stream_(device_runtime(device.type).create_stream(device, priority)) {}

Stream::~Stream() {
  if (stream_.handle) device_runtime(stream_.device.type).destroy_stream(stream_);
}

void Stream::synchronize() const { lockstep::synchronize(stream_); }

StreamRef current_stream(Device device) {
  if (device.is_cpu()) return {};
  return {device, current_handle(device)};
}

StreamGuard::StreamGuard(StreamRef stream) : previous_(current_stream(stream.device)) {
  if (stream.device.is_cuda()) current_handle(stream.device) = stream.handle;
}

StreamGuard::~StreamGuard() {
  if (previous_.device.is_cuda()) current_handle(previous_.device) = previous_.handle;
}

// What the host waits for it goes on to read: not after a collective failed that nobody waited for.
void synchronize(StreamRef stream) {
  device_runtime(stream.device.type).synchronize(stream);
  if (stream.device.is_cuda()) raise_background_failure();
}

Event::Event(Device device, bool timing)
    : device_(device), handle_(device_runtime(device.type).create_event(device, timing)) {}

Event::~Event() {
  if (handle_) device_runtime(device_.type).destroy_event(device_, handle_);
}

void Event::record(StreamRef stream) { device_runtime(device_.type).record_event(handle_, stream); }

void Event::wait(StreamRef stream) const {
  device_runtime(device_.type).wait_event(handle_, stream);
}

bool Event::query() const { return device_runtime(device_.type).query_event(handle_); }

void Event::synchronize() const {
  device_runtime(device_.type).synchronize_event(handle_);
  if (device_.is_cuda()) raise_background_failure();
}

float Event::elapsed_ms(const Event& later) const {
  return device_runtime(device_.type).elapsed_ms(handle_, later.handle_);
}

}  // namespace lockstep
