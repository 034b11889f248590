#pragma once

#include <cfenv>

/// @file
/// How a thread rounds floats, what it does with tiny ones, and which operations trap.

namespace lockstep::comm::host {

#if defined(__x86_64__) && defined(__SSE2__)

/// The mode of a thread.
class FloatMode {
 public:
  /// The calling thread's.
  FloatMode() : bits_(__builtin_ia32_stmxcsr() & ~flags) {}
  /// Makes it the calling thread's.
  void set() const { __builtin_ia32_ldmxcsr(bits_); }
  friend bool operator==(const FloatMode&, const FloatMode&) = default;

 private:
  static constexpr unsigned flags = 0x3f;  // what has happened, not what shall

  unsigned bits_;
};

#else

class FloatMode {
 public:
  FloatMode() { std::fegetenv(&environment_); }
  void set() const { std::fesetenv(&environment_); }
  friend bool operator==(const FloatMode&, const FloatMode&) { return false; }

 private:
  std::fenv_t environment_;
};

#endif

/// Gives the calling thread another mode for a while.
class FloatModeScope {
 public:
  explicit FloatModeScope(const FloatMode& mode) : changes_(mode != own_) {
    if (changes_) mode.set();
  }
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;
  ~FloatModeScope() {
    if (changes_) own_.set();
  }

 private:
  const FloatMode own_;
  const bool changes_;
};

}  // namespace lockstep::comm::host
