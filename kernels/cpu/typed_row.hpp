#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/loops.hpp"
#include "lockstep/core/array_view.hpp"

namespace lockstep::cpu_kernels {

/// Reads `count` elements of a floating view, starting at element offset `at`, into the
/// accumulation type.
template <class Sum>
void load_row(Sum* to, const ArrayView& from, std::int64_t at, std::int64_t stride,
              std::int64_t count) {
  dispatch_floating(from.dtype, "load_row", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const source = from.as<const T>() + at;
    if constexpr (std::is_same_v<AccumulateType<T>, Sum>)
      loops().load[static_cast<std::size_t>(from.dtype)](to, source, stride, count);
    else
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<Sum>(static_cast<AccumulateType<T>>(source[i * stride]));
  });
}

/// Writes `count` elements of the accumulation type to a floating view.
template <class Sum>
void store_row(const ArrayView& to, std::int64_t at, std::int64_t stride, const Sum* from,
               std::int64_t count) {
  dispatch_floating(to.dtype, "store_row", [&](auto tag) {
    using T = typename decltype(tag)::type;
    loops().store(accumulate_of(dtype_of<Sum>), to.dtype)(to.as<T>() + at, stride, from, count);
  });
}

}  // namespace lockstep::cpu_kernels
