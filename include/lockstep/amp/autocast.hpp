#pragma once

#include <array>

#include "lockstep/autograd/cast_cache.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/device.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// Mixed precision (Micikevicius et al. 2018) without changes to a model: docs/mixed-precision.md.

namespace lockstep::amp {

/// Options of an Autocast scope.
struct AutocastOptions {
  /// False: ops run in the dtypes of their operands, inside an outer scope too.
  bool enabled = true;
  /// Whether weights are converted once until the end of the outermost scope rather than by every
  /// op that uses them. It costs the memory of the converted weights.
  bool cache_enabled = true;
};

/// What the Autocast scopes of a thread have set: for work that is repeated later, as in a backward
/// that runs a part of the forward again, or that another thread does.
class AutocastState {
 public:
  /// That of the calling thread, now.
  static AutocastState current() noexcept;
  /// True if ops on a device of that kind are cast.
  bool is_enabled(Device device) const noexcept { return dtype(device) != DType::f32; }
  /// The dtype of products on a device of that kind; f32 if they are left alone.
  DType dtype(Device device) const noexcept;

 private:
  friend class Autocast;
  AutocastState(const std::array<DType, 2>& dtypes, bool cache_enabled) noexcept
      : dtypes_(dtypes), cache_enabled_(cache_enabled) {}

  std::array<DType, 2> dtypes_;
  bool cache_enabled_;
};

/// Lets ops of the calling thread run in the dtype that suits each, until the end of scope:
/// products in the lower precision, sums, losses and exponentials in f32 (docs/mixed-precision.md
/// lists all). Parameters stay f32, and so do their gradients. Scopes nest. A backward runs in the
/// dtypes of its forward, inside a scope or not.
class Autocast {
 public:
  /// On devices of every kind.
  /// @param dtype bf16 or f16. @throws InvalidArgument for others, unless `enabled` is false.
  [[nodiscard]] explicit Autocast(DType dtype, AutocastOptions options = {});
  /// On devices of one kind: `Autocast(DType::bf16, DeviceType::cuda)`; the index does not matter.
  /// @param dtype as above. @throws as above.
  [[nodiscard]] Autocast(DType dtype, Device device, AutocastOptions options = {});
  /// As the thread that took the state.
  [[nodiscard]] explicit Autocast(const AutocastState& state) noexcept;
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() = default;

 private:
  autograd::CastCacheScope cache_;
  autograd::AutocastModeGuard modes_;
};

}  // namespace lockstep::amp
