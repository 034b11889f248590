#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/core/random.hpp"

/// @file
/// Random numbers for the samples of a data set: augmentation, noise, masks.

namespace lockstep::data {

/// A random sequence for each sample of an epoch, and for each op on it. It depends on (seed,
/// epoch, sample, op) alone: not on the rank, the batch or the worker thread that fetches the
/// sample. DataLoader makes one for every epoch. Any number of threads may use it.
class SampleRandom {
 public:
  /// The sequences of seed 0 in epoch 0.
  SampleRandom() = default;
  /// The sequences of one epoch.
  SampleRandom(std::uint64_t seed, std::uint64_t epoch) : seed_(seed), epoch_(epoch) {}

  /// A generator at the beginning of a sample's sequence:
  /// `Generator generator = random.of(index); rand({3}, {}, generator)`.
  Generator of(std::int64_t sample) const;
  /// The same of one op, by a name of its own: `random.of(index, "crop")`. What one op draws, or
  /// whether it is there at all, changes nothing in what others draw.
  Generator of(std::int64_t sample, std::string_view op) const;
  /// The sequences of a data set that is one of several, in one of its passes: others for each.
  SampleRandom within(std::uint64_t dataset, std::uint64_t pass) const;

 private:
  std::uint64_t seed_ = 0, epoch_ = 0;
};

/// Moves the calling thread's default generator to another sequence for a while.
class DefaultGeneratorScope {
 public:
  /// Goes to `state`; the generator's own place comes back at the end of the scope.
  explicit DefaultGeneratorScope(PhiloxState state) : previous_(default_generator().state()) {
    default_generator().set_state(state);
  }
  ~DefaultGeneratorScope() { default_generator().set_state(previous_); }
  DefaultGeneratorScope(const DefaultGeneratorScope&) = delete;
  DefaultGeneratorScope& operator=(const DefaultGeneratorScope&) = delete;

 private:
  PhiloxState previous_;
};

}  // namespace lockstep::data
