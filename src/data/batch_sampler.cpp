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
  const std::int64_t last = samples % options.batch_size;
  const std::int64_t smallest = options.drop_last || last == 0 ? options.batch_size : last;
  LOCKSTEP_CHECK(
      smallest >= options.world_size, InvalidArgument, "a batch of ", smallest, " samples (",
      samples, " samples in batches of ", options.batch_size, ") cannot be shared by ",
      options.world_size,
      " ranks; use drop_last, or a batch_size that leaves no rest smaller than the ranks");
}

std::int64_t BatchSampler::size() const {
  const std::int64_t whole = sampler_->size() / options_.batch_size;
  const bool rest = sampler_->size() % options_.batch_size != 0;
  return whole + (rest && !options_.drop_last);
}

std::vector<std::int64_t> BatchSampler::order(std::uint64_t epoch) const {
  std::vector<std::int64_t> order = sampler_->order(epoch);
  LOCKSTEP_CHECK(static_cast<std::int64_t>(order.size()) == sampler_->size(), InvalidArgument,
                 "the sampler gave ", order.size(), " indices for epoch ", epoch,
                 ", but its size is ", sampler_->size(), "; the two must agree in every epoch");
  return order;
}

std::span<const std::int64_t> BatchSampler::part(std::span<const std::int64_t> order,
                                                 std::int64_t batch) const {
  LOCKSTEP_CHECK(batch >= 0 && batch < size(), InvalidArgument, "batch ", batch,
                 " is outside 0 to ", size() - 1);
  const std::int64_t begin = batch * options_.batch_size;
  const std::int64_t length =
      std::min(options_.batch_size, static_cast<std::int64_t>(order.size()) - begin);
  const std::int64_t whole = length / options_.world_size, rest = length % options_.world_size;
  const std::int64_t first = options_.rank * whole + std::min<std::int64_t>(options_.rank, rest);
  return order.subspan(static_cast<std::size_t>(begin + first),
                       static_cast<std::size_t>(whole + (options_.rank < rest)));
}

}  // namespace lockstep::data
