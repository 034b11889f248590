#pragma once

#include <cstdint>

#include "lockstep/core/philox.hpp"

/// @file
/// Drawing the same random numbers again.

namespace lockstep {

/// Where the calling thread's generator draws next, also within a captured step, whose draws are
/// others with each launch.
class RandomPosition {
 public:
  /// As it is now.
  RandomPosition();
  /// Goes back to it, or forth: in a captured step, to one of the same step.
  void restore() const;

 private:
  PhiloxState generator_;
  std::uint64_t draws_ = 0;  // of the captured step
};

}  // namespace lockstep
