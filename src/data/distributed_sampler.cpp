#include "lockstep/data/distributed_sampler.hpp"

#include "core/fnv_hash.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/permutation.hpp"

namespace lockstep::data {

DistributedSampler::DistributedSampler(std::int64_t dataset_size, DistributedSamplerOptions options)
    : dataset_size_(dataset_size), options_(options) {
  LOCKSTEP_CHECK(options.world_size > 0, InvalidArgument, "world_size is ", options.world_size,
                 "; at least 1 rank is needed");
  LOCKSTEP_CHECK(options.rank >= 0 && options.rank < options.world_size, InvalidArgument, "rank ",
                 options.rank, " is outside 0 to ", options.world_size - 1);
  LOCKSTEP_CHECK(dataset_size > 0, InvalidArgument, "the data set is empty (", dataset_size,
                 " samples); at least one sample per rank is needed");
  LOCKSTEP_CHECK(dataset_size >= options.world_size, InvalidArgument, "a data set of ",
                 dataset_size, " samples cannot be shared by ", options.world_size,
                 " ranks; use at most ", dataset_size, " ranks");
}

std::int64_t DistributedSampler::size() const {
  const std::int64_t whole = dataset_size_ / options_.world_size;
  const std::int64_t rest = dataset_size_ % options_.world_size;
  switch (options_.remainder) {
    case Remainder::pad: return whole + (rest > 0);
    case Remainder::uneven: return whole + (options_.rank < rest);
    case Remainder::drop: break;
  }
  return whole;
}

void DistributedSampler::indices(std::uint64_t epoch, std::int64_t first,
                                 std::span<std::int64_t> out) const {
  const Permutation shuffled(dataset_size_, options_.seed, epoch);
  std::int64_t position = options_.rank + first * options_.world_size;
  for (std::int64_t& index : out) {
    const std::int64_t wrapped = position % dataset_size_;
    index = options_.shuffle ? shuffled(wrapped) : wrapped;
    position += options_.world_size;
  }
}

std::uint64_t DistributedSampler::order_signature() const {
  if (options_.shuffle) return RandomSampler(dataset_size_, options_.seed).order_signature();
  return SequentialSampler(dataset_size_).order_signature();
}

std::uint64_t DistributedSampler::signature() const {
  const std::uint64_t words[] = {static_cast<std::uint64_t>(dataset_size_),
                                 static_cast<std::uint64_t>(options_.world_size),
                                 static_cast<std::uint64_t>(options_.shuffle), options_.seed,
                                 static_cast<std::uint64_t>(options_.remainder)};
  return lockstep::detail::fnv_hash(words, sizeof words);
}

}  // namespace lockstep::data
