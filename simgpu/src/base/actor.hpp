#pragma once

#include <cstdint>
#include <string>

#include "base/call_site.hpp"
#include "base/vector_clock.hpp"

/// @file
/// Who touches memory.

namespace simgpu {

/// What is known of an operation, or of an access of the host.
struct Actor {
  std::string name;
  CallSite site;
  std::string place;   ///< "stream 3 (non-blocking, device 0)" or "the host"
  Epoch epoch;         ///< its own step
  VectorClock before;  ///< what came before it, its own step included
  bool is_host = false;
  std::uint64_t number = 0;    ///< in the order of the calls (engine/host.hpp)
  bool changes_hands = false;  ///< writes nothing: the memory gets another owner

  bool comes_before(const Actor& other) const { return other.before.knows(epoch); }
};

}  // namespace simgpu
