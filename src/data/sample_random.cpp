#include "lockstep/data/sample_random.hpp"

namespace lockstep::data {

// Ops draw from Philox sequences of the plain seed, shuffles from those of another key: a block of
// a third one gives each sample a seed of its own.
Generator SampleRandom::of(std::int64_t sample) const {
  constexpr std::uint64_t sample_key = 0x73616D70'6C657321u;
  const PhiloxState sequence{seed_ ^ sample_key, epoch_};
  const PhiloxBlock block = sequence.block(static_cast<std::uint64_t>(sample));
  return Generator(std::uint64_t{block.word[1]} << 32 | block.word[0]);
}

}  // namespace lockstep::data
