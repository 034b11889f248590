#pragma once

#include <cstdint>

#include "lockstep/core/array_view.hpp"

namespace lockstep::cpu_kernels {

/// Reads `count` elements of a floating view, starting at element offset `at`, into the
/// accumulation type.
template <class Sum>
void load_row(Sum* to, const ArrayView& from, std::int64_t at, std::int64_t stride,
              std::int64_t count) {
  dispatch_floating(from.dtype, "load_row", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Via = AccumulateType<T>;
    const T* source = from.as<const T>() + at;
    if (stride == 1)
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<Sum>(static_cast<Via>(source[i]));
    else
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<Sum>(static_cast<Via>(source[i * stride]));
  });
}

/// Writes `count` elements of the accumulation type to a floating view.
template <class Sum>
void store_row(const ArrayView& to, std::int64_t at, std::int64_t stride, const Sum* from,
               std::int64_t count) {
  dispatch_floating(to.dtype, "store_row", [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* target = to.as<T>() + at;
    using Via = AccumulateType<T>;
    if (stride == 1)
      for (std::int64_t i = 0; i < count; ++i) target[i] = T(static_cast<Via>(from[i]));
    else
      for (std::int64_t i = 0; i < count; ++i) target[i * stride] = T(static_cast<Via>(from[i]));
  });
}

}  // namespace lockstep::cpu_kernels
