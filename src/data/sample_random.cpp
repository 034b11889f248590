#include "lockstep/data/sample_random.hpp"

#include "core/fnv_hash.hpp"

namespace lockstep::data {
namespace {

// Ops draw from Philox sequences of the plain seed, shuffles from those of other keys: a block of
// one more gives each sample, each op, and each data set among several, a seed of its own.
constexpr std::uint64_t sample_key = 0x73616D70'6C657321u;
constexpr std::uint64_t op_key = 0x6F706572'61746F72u;
constexpr std::uint64_t dataset_key = 0x64617461'73657421u;

std::uint64_t drawn_seed(PhiloxState sequence, std::uint64_t number) {
  const PhiloxBlock block = sequence.block(number);
  return std::uint64_t{block.word[1]} << 32 | block.word[0];
}

}  // namespace

Generator SampleRandom::of(std::int64_t sample) const {
  return Generator(drawn_seed({seed_ ^ sample_key, epoch_}, static_cast<std::uint64_t>(sample)));
}

Generator SampleRandom::of(std::int64_t sample, std::string_view op) const {
  const std::uint64_t name = lockstep::detail::fnv_hash(op.data(), op.size());
  return Generator(drawn_seed({of(sample).state().seed ^ op_key, 0}, name));
}

SampleRandom SampleRandom::within(std::uint64_t dataset, std::uint64_t pass) const {
  return {drawn_seed({seed_ ^ dataset_key, epoch_}, dataset), pass};
}

}  // namespace lockstep::data
