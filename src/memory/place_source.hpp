#pragma once

#include <atomic>
#include <cstdint>
#include <string>

/// @file
/// How this layer learns which module runs.

namespace lockstep::detail {

/// Given by the layer that knows modules.
struct PlaceSource {
  /// Number of the module that the calling thread runs, forward or backward; 0: none. No two
  /// modules of a process have the same.
  std::uint32_t (*current)() noexcept;
  /// Its path; empty if it is gone.
  std::string (*path)(std::uint32_t place);
};

inline constinit std::atomic<const PlaceSource*> place_source{nullptr};

}  // namespace lockstep::detail
