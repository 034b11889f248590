#include "runtime/device_clock.hpp"

#include <map>
#include <memory>
#include <mutex>

namespace lockstep {
namespace {

using HostClock = Event::HostTime::clock;

std::shared_ptr<const DeviceClock> clock_of(Device device) {
  static std::mutex mutex;
  static auto& clocks = *new std::map<std::pair<DeviceType, int>, std::shared_ptr<DeviceClock>>;
  const std::lock_guard lock(mutex);
  auto& clock = clocks[{device.type, device.index}];
  if (!clock || clock->is_old()) clock = std::make_shared<DeviceClock>(device);
  return clock;
}

}  // namespace

DeviceClock::DeviceClock(Device device) : zero_(device, true) {
  const Stream idle(device);
  const auto before = HostClock::now();
  zero_.record(idle);
  zero_.synchronize();
  zero_time_ = before + (HostClock::now() - before) / 2;
}

Event::HostTime DeviceClock::time_of(const Event& mark) const {
  const std::chrono::duration<double, std::milli> since(zero_.elapsed_ms(mark));
  return zero_time_ + std::chrono::duration_cast<HostClock::duration>(since);
}

bool DeviceClock::is_old() const {
  return HostClock::now() - zero_time_ > std::chrono::seconds(30);
}

Event::HostTime Event::reached_at() const { return clock_of(device_)->time_of(*this); }

}  // namespace lockstep
