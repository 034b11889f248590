#pragma once

#include <array>

#include "lockstep/core/device.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// What the calling thread has switched on: read by every op, so all of it lies together.

namespace lockstep::autograd {

class Recomputation;

/// Modes of one thread.
struct ThreadModes {
  /// Ops are recorded for backward.
  bool grad = true;
  /// Mixed precision is on for at least one kind of device.
  bool autocast = false;
  /// The dtype of ops with AutocastPolicy::lower_precision, by DeviceType; f32 where it is off.
  std::array<DType, 2> autocast_dtype = {DType::f32, DType::f32};
  /// The part of a forward to which ops leave what they save; null: they keep it.
  Recomputation* recomputation = nullptr;
  /// A part of a forward runs again.
  bool recomputing = false;
  /// What is read is told to the StepGraph that captures it, or is about to.
  bool noting_reads = false;
};

extern constinit thread_local ThreadModes thread_modes;

/// Sets the autocast dtype of a kind of device for the calling thread until the end of scope.
class AutocastModeGuard {
 public:
  /// @param dtype bf16 or f16; f32 switches mixed precision off for that kind of device.
  AutocastModeGuard(DeviceType device, DType dtype) noexcept;
  /// Sets the dtypes of all kinds of devices, as in ThreadModes::autocast_dtype.
  explicit AutocastModeGuard(const std::array<DType, 2>& dtypes) noexcept;
  /// Switches mixed precision off for all kinds of devices.
  AutocastModeGuard() noexcept;
  AutocastModeGuard(const AutocastModeGuard&) = delete;
  AutocastModeGuard& operator=(const AutocastModeGuard&) = delete;
  ~AutocastModeGuard();

 private:
  void set(const std::array<DType, 2>& dtypes) noexcept;

  std::array<DType, 2> previous_;
};

}  // namespace lockstep::autograd
