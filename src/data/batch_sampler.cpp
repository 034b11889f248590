#include "lockstep/data/batch_sampler.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::data {

BatchSampler::BatchSampler(std::shared_ptr<const Sampler> sampler, BatchOptions options)
    : sampler_(std::move(sampler)), options_(options) {
  LOCKSTEP_CHECK(sampler_, InvalidArgument, "there is no sampler; batches need one");
  LOCKSTEP_CHECK(options.batch_size > 0, InvalidArgument, "batch_size is ", options.batch_size,
                 "; at least 1 is needed");
  LOCKSTEP_CHECK(options.world_size > 0 && options.rank >= 0 && options.rank < options.world_size,
                 InvalidArgument, "rank ", options.rank, " of ", options.world_size,
                 " does not exist; ranks go from 0 to world_size - 1");
  LOCKSTEP_CHECK(options.world_size == 1 || sampler_->world_size() == 1, InvalidArgument,
                 "the sampler shares the samples among ", sampler_->world_size(),
                 " ranks, and rank ", options.rank, " of ", options.world_size,
                 " would take a part of its share only; leave out the loader's rank and "
                 "world_size, or use a RandomSampler with them");
  const std::int64_t samples = sampler_->size();
  LOCKSTEP_CHECK(size() > 0, InvalidArgument, samples, " samples make no batch of ",
                 options.batch_size, options.drop_last ? " when the last one is dropped" : "",
                 "; use a smaller batch_size or more samples");
  check_last_batch(samples);
}

void BatchSampler::check_last_batch(std::int64_t samples) const {
  const std::int64_t last = samples % options_.batch_size;
  const bool needs_full = options_.drop_last || options_.allow_empty || last == 0;
  const std::int64_t smallest = needs_full ? options_.batch_size : last;
  LOCKSTEP_CHECK(smallest >= options_.world_size, InvalidArgument, "a batch of ", smallest,
                 " samples (", samples, " samples in batches of ", options_.batch_size,
                 ") cannot be shared by ", options_.world_size, " ranks; ",
                 needs_full
                     ? "use a larger batch_size"
                     : "use drop_last, allow_empty, by which ranks get a batch of no samples, or a "
                       "batch_size that leaves no rest smaller than the ranks");
}

void BatchSampler::check_consumed(std::int64_t consumed) const {
  const int ranks = sampler_->world_size();
  LOCKSTEP_CHECK(consumed >= 0 && consumed / ranks <= sampler_->size(), InvalidArgument, consumed,
                 " samples cannot be behind a place in an epoch of ", sampler_->size(), " samples",
                 ranks > 1 ? " a rank" : "");
  LOCKSTEP_CHECK(consumed % ranks == 0, InvalidArgument, ranks,
                 " ranks that share samples by a DistributedSampler cannot go on after ", consumed,
                 " samples, which they do not divide; use a RandomSampler, and the loader's rank "
                 "and world_size");
  if (left(consumed) > 0) check_last_batch(left(consumed));
}

// Of this rank's samples, or of all where batches are cut for ranks.
std::int64_t BatchSampler::left(std::int64_t consumed) const {
  return sampler_->size() - consumed / sampler_->world_size();
}

std::int64_t BatchSampler::size(std::int64_t consumed) const {
  const std::int64_t samples = left(consumed);
  const bool rest = samples % options_.batch_size != 0;
  return samples / options_.batch_size + (rest && !options_.drop_last);
}

std::int64_t BatchSampler::consumed(std::int64_t batches, std::int64_t consumed) const {
  const std::int64_t more = std::min(batches * options_.batch_size, left(consumed));
  return consumed + more * sampler_->world_size();
}

BatchSampler::Part BatchSampler::part(std::int64_t batch, std::int64_t consumed) const {
  const std::int64_t begin = batch * options_.batch_size;
  const std::int64_t length = std::min(options_.batch_size, left(consumed) - begin);
  const std::int64_t whole = length / options_.world_size, rest = length % options_.world_size;
  const std::int64_t first = options_.rank * whole + std::min<std::int64_t>(options_.rank, rest);
  return {.first = consumed / sampler_->world_size() + begin + first,
          .size = whole + (options_.rank < rest)};
}

std::vector<std::int64_t> BatchSampler::indices(std::uint64_t epoch, std::int64_t batch,
                                                std::int64_t consumed) const {
  LOCKSTEP_CHECK(batch >= 0 && batch < size(consumed), InvalidArgument, "batch ", batch,
                 " is outside 0 to ", size(consumed) - 1);
  const Part own = part(batch, consumed);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(own.size));
  sampler_->indices(epoch, own.first, indices);
  return indices;
}

}  // namespace lockstep::data
