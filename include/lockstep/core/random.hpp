#pragma once

#include <cstdint>
#include <mutex>

#include "lockstep/core/philox.hpp"

/// @file
/// Sources of randomness: what a draw takes its place in the sequence from.

namespace lockstep {

/// Hands out places in a Philox sequence. Safe to call from several threads, though the order in
/// which threads draw is then theirs to fix.
class Generator {
 public:
  /// Starts at the first place of the seed's sequence.
  explicit Generator(std::uint64_t seed = 0) : state_{seed, 0} {}

  /// Restarts the sequence with a new seed.
  void manual_seed(std::uint64_t seed);
  /// The next place; every call gives another one.
  PhiloxState next();
  /// Where the generator stands, for checkpoints.
  PhiloxState state() const;
  /// Goes back to a place that `state` gave.
  void set_state(PhiloxState state);

 private:
  mutable std::mutex mutex_;
  PhiloxState state_;
};

/// The generator of the calling thread: ranks that are threads each have their own. That of a new
/// thread starts at seed 0, whatever others were seeded with: seed each thread, and each otherwise.
Generator& default_generator();

/// Seeds the calling thread's generator.
void manual_seed(std::uint64_t seed);

}  // namespace lockstep
