#include "lockstep/autograd/thread_modes.hpp"

namespace lockstep::autograd {

constinit thread_local ThreadModes thread_modes;

AutocastModeGuard::AutocastModeGuard(DeviceType device, DType dtype) noexcept
    : previous_(thread_modes.autocast_dtype) {
  auto dtypes = previous_;
  dtypes[static_cast<std::size_t>(device)] = dtype;
  set(dtypes);
}

AutocastModeGuard::AutocastModeGuard(const std::array<DType, 2>& dtypes) noexcept
    : previous_(thread_modes.autocast_dtype) {
  set(dtypes);
}

AutocastModeGuard::AutocastModeGuard() noexcept : AutocastModeGuard(ThreadModes{}.autocast_dtype) {}

AutocastModeGuard::~AutocastModeGuard() { set(previous_); }

void AutocastModeGuard::set(const std::array<DType, 2>& dtypes) noexcept {
  thread_modes.autocast_dtype = dtypes;
  thread_modes.autocast = dtypes != ThreadModes{}.autocast_dtype;
}

}  // namespace lockstep::autograd
