#include "lockstep/amp/autocast.hpp"

#include <cstddef>

#include "lockstep/core/error.hpp"

namespace lockstep::amp {
namespace {

/// What products run in; f32 stands for mixed precision that is off.
DType product_dtype(DType dtype, const AutocastOptions& options) {
  if (!options.enabled) return DType::f32;
  LOCKSTEP_CHECK(dtype == DType::bf16 || dtype == DType::f16, InvalidArgument,
                 "amp::Autocast: dtype ", dtype,
                 " is no lower precision; give bf16 or f16, or enabled = false to switch it off");
  return dtype;
}

}  // namespace

AutocastState AutocastState::current() noexcept {
  return {autograd::thread_modes.autocast_dtype, autograd::CastCacheScope::active()};
}

DType AutocastState::dtype(Device device) const noexcept {
  return dtypes_[static_cast<std::size_t>(device.type)];
}

Autocast::Autocast(DType dtype, AutocastOptions options)
    : cache_(options.cache_enabled),
      modes_({product_dtype(dtype, options), product_dtype(dtype, options)}) {}

Autocast::Autocast(DType dtype, Device device, AutocastOptions options)
    : cache_(options.cache_enabled), modes_(device.type, product_dtype(dtype, options)) {}

Autocast::Autocast(const AutocastState& state) noexcept
    : cache_(state.cache_enabled_), modes_(state.dtypes_) {}

}  // namespace lockstep::amp
