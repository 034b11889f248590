#include "lockstep/autograd/grad_mode.hpp"

namespace lockstep {
namespace {
thread_local bool enabled_here = true;
}

bool grad_enabled() noexcept { return enabled_here; }

GradModeGuard::GradModeGuard(bool enabled) noexcept : previous_(enabled_here) {
  enabled_here = enabled;
}

GradModeGuard::~GradModeGuard() { enabled_here = previous_; }

}  // namespace lockstep
