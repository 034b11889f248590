#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "lockstep/core/shape.hpp"

/// @file
/// Sizes that a file claims.

namespace lockstep::io {

/// Bytes of an array; none if they, or the product of the extents that are not 0, pass 2^63 - 1.
/// The latter is what a tensor's strides must hold even where an extent of 0 leaves no elements.
inline std::optional<std::uint64_t> checked_bytes(const Shape& shape, std::uint64_t width) {
  std::int64_t bytes = static_cast<std::int64_t>(width);
  bool empty = false;
  for (const auto extent : shape) {
    empty |= extent == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) return {};
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

}  // namespace lockstep::io
