#pragma once

/// @file
/// Whether the compiler's hooks look at what the running code does.

namespace simgpu {

class KernelRunner;

/// Set while the thread runs a watched kernel: the hooks' only test in all other code.
inline constinit thread_local KernelRunner* watching = nullptr;

/// Turns the hooks to a runner, or off, for a scope. Templates of the standard library may be
/// the instrumented ones wherever they are called, so that the engine turns hooks off to make
/// reports.
class WatchScope {
 public:
  explicit WatchScope(KernelRunner* by) : former_(watching) { watching = by; }
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;
  ~WatchScope() { watching = former_; }

 private:
  KernelRunner* former_;
};

}  // namespace simgpu
