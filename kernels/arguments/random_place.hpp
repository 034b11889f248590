#pragma once

#include <cstdint>

#include "lockstep/core/philox.hpp"

/// @file
/// Where in a random sequence a kernel draws.

namespace lockstep::kernels {

/// A place that kernels look up when they run, in the memory of their device: so many draws after
/// the one that lies there. Work that is queued once draws other numbers each time it runs, if the
/// memory is changed in between.
struct RandomPlace {
  const PhiloxState* base = nullptr;
  std::uint64_t draws = 0;

  LOCKSTEP_HD PhiloxState get() const { return {base->seed, base->offset + draws}; }
};

}  // namespace lockstep::kernels
