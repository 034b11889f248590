#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Hashes that all machines agree on.

namespace lockstep::detail {

/// FNV-1a (Fowler, Noll and Vo), for what ranks compare or a run is to find again: they may have
/// different builds of the standard library, so std::hash will not do.
inline std::uint64_t fnv_hash(const void* data, std::size_t size) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (std::size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3;
  return hash;
}

}  // namespace lockstep::detail
