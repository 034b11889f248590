#pragma once

#include <utility>

#include "lockstep/autograd/thread_modes.hpp"

/// @file
/// Whether ops are recorded.

namespace lockstep {

/// True if the calling thread records ops for backward (the default).
inline bool grad_enabled() noexcept { return autograd::thread_modes.grad; }

/// Turns recording on or off for the calling thread until the end of scope.
class GradModeGuard {
 public:
  /// Sets the mode.
  [[nodiscard]] explicit GradModeGuard(bool enabled) noexcept
      : previous_(std::exchange(autograd::thread_modes.grad, enabled)) {}
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;
  ~GradModeGuard() { autograd::thread_modes.grad = previous_; }

 private:
  bool previous_;
};

/// Turns recording off until the end of scope: for evaluation and for updating parameters.
class NoGradGuard : public GradModeGuard {
 public:
  /// Turns recording off.
  [[nodiscard]] NoGradGuard() noexcept : GradModeGuard(false) {}
};

/// Runs a function with recording off and returns its result.
template <class Function>
decltype(auto) no_grad(Function&& function) {
  const NoGradGuard guard;
  return static_cast<Function&&>(function)();
}

}  // namespace lockstep
