#pragma once

/// @file
/// Whether the compiler's hooks look at what the running code does.

namespace simgpu {

class Executor;

/// Set while the thread runs a watched kernel: the hooks' only test in all other code.
inline constinit thread_local Executor* watching = nullptr;

/// False with LOCKSTEP_SIM_WATCH=0: kernels then run at full speed and unchecked.
bool watching_is_on();

/// Turns the hooks to an executor, or off, for a scope. Templates of the standard library may be
/// the instrumented ones wherever they are called, so that the engine turns hooks off to make
/// reports.
class WatchScope {
 public:
  explicit WatchScope(Executor* by) : former_(watching) { watching = by; }
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;
  ~WatchScope() { watching = former_; }

 private:
  Executor* former_;
};

}  // namespace simgpu
