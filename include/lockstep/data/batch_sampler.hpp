#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/data/sampler.hpp"

/// @file
/// Cutting a sampler's order into batches.

namespace lockstep::data {

/// How an epoch is cut into batches.
struct BatchOptions {
  /// Samples in a batch, over all of `world_size` ranks.
  std::int64_t batch_size = 1;
  /// Leave out a last batch that is not full.
  bool drop_last = false;
  /// Take a last batch that is smaller than `world_size`, of which ranks get no sample.
  bool allow_empty = false;
  /// With more than one rank each batch is cut into contiguous parts, the first ones longer by one
  /// where it does not divide: 8 samples on 3 ranks are 3, 3 and 2. All ranks must then have the
  /// same sampler. One that shares the samples itself, as DistributedSampler does, is refused.
  int rank = 0;
  int world_size = 1;
};

/// Groups the indices of a sampler into batches.
class BatchSampler {
 public:
  /// @throws InvalidArgument for a batch size below 1 or a batch too small for the ranks (but for a
  /// last one where `allow_empty` says so), a rank out of range, a sampler with fewer samples than
  /// a batch when the last one is dropped, or one that shares its samples between ranks where the
  /// options do so too.
  template <std::derived_from<Sampler> S>
  explicit BatchSampler(S sampler, BatchOptions options = {})
      : BatchSampler(std::shared_ptr<const Sampler>(std::make_shared<S>(std::move(sampler))),
                     options) {}
  /// The same for a sampler that is shared.
  BatchSampler(std::shared_ptr<const Sampler> sampler, BatchOptions options);

  /// Number of batches in an epoch, or in what is left of it.
  /// @param consumed samples of the epoch's beginning that were visited already, over all ranks.
  std::int64_t size(std::int64_t consumed = 0) const;
  /// This rank's indices in one batch, none where `allow_empty` lets it have none. Any number of
  /// threads may call it.
  /// @param batch from 0 to `size(consumed)` - 1, counted from where the samples consumed end.
  /// @throws InvalidArgument for another batch.
  std::vector<std::int64_t> indices(std::uint64_t epoch, std::int64_t batch,
                                    std::int64_t consumed = 0) const;
  /// Samples of the epoch's beginning that were visited, over all ranks, after so many batches
  /// more.
  std::int64_t consumed(std::int64_t batches, std::int64_t consumed = 0) const;
  /// @throws InvalidArgument for an epoch that cannot go on there: a number below 0 or beyond the
  /// epoch's samples, one that the ranks of a DistributedSampler do not divide, or, without
  /// `allow_empty`, a last batch that would leave a rank without a sample.
  void check_consumed(std::int64_t consumed) const;
  /// Which share this is; -1: the sampler does not tell.
  int rank() const { return sampler_->world_size() > 1 ? sampler_->rank() : options_.rank; }
  /// How many shares there are, by the options or the sampler.
  int world_size() const { return std::max(options_.world_size, sampler_->world_size()); }
  /// How an epoch is cut.
  const BatchOptions& options() const { return options_; }
  /// The sampler.
  const Sampler& sampler() const { return *sampler_; }

 private:
  struct Part {
    std::int64_t first, size;
  };
  Part part(std::int64_t batch, std::int64_t consumed) const;
  std::int64_t left(std::int64_t consumed) const;
  void check_last_batch(std::int64_t samples) const;

  std::shared_ptr<const Sampler> sampler_;
  BatchOptions options_;
};

}  // namespace lockstep::data
