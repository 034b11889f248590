#pragma once

/// @file
/// Whether the compiler's hooks look at what the running code does.

namespace simgpu {

class KernelRunner;

/// Set while the thread runs a watched kernel: the hooks' only test in all other code.
inline constinit thread_local KernelRunner* watching = nullptr;
/// Set while the thread runs a kernel, watched or not: what threads look at again and again.
inline constinit thread_local KernelRunner* polled = nullptr;

/// Turns the hooks to a runner, or off, for a scope. Templates of the standard library may be
/// the instrumented ones wherever they are called, so that the engine turns hooks off to make
/// reports.
class WatchScope {
 public:
  explicit WatchScope(KernelRunner* by) : WatchScope(by, by) {}
  /// @param polls_of who is told of looks at memory that others may change
  WatchScope(KernelRunner* by, KernelRunner* polls_of) : former_(watching), former_polled_(polled) {
    watching = by;
    polled = polls_of;
  }
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;
  ~WatchScope() {
    watching = former_;
    polled = former_polled_;
  }

 private:
  KernelRunner* former_;
  KernelRunner* former_polled_;
};

}  // namespace simgpu
