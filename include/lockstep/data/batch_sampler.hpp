#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
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
  /// With more than one rank each batch is cut into contiguous parts, the first ones longer by one
  /// where it does not divide: 8 samples on 3 ranks are 3, 3 and 2. All ranks must then have the
  /// same sampler. One that shares the samples itself, as DistributedSampler does, is refused.
  int rank = 0;
  int world_size = 1;
};

/// Groups the indices of a sampler into batches.
class BatchSampler {
 public:
  /// @throws InvalidArgument for a batch size below 1 or a batch too small for the ranks, a rank
  /// out of range, a sampler with fewer samples than a batch when the last one is dropped, or one
  /// that shares its samples between ranks where the options do so too.
  template <std::derived_from<Sampler> S>
  explicit BatchSampler(S sampler, BatchOptions options = {})
      : BatchSampler(std::shared_ptr<const Sampler>(std::make_shared<S>(std::move(sampler))),
                     options) {}
  /// The same for a sampler that is shared.
  BatchSampler(std::shared_ptr<const Sampler> sampler, BatchOptions options);

  /// Number of batches in an epoch.
  std::int64_t size() const;
  /// All indices of an epoch, to be cut by `part`.
  /// @throws InvalidArgument if the sampler gives another number of them than it said.
  std::vector<std::int64_t> order(std::uint64_t epoch) const;
  /// This rank's indices in one batch.
  /// @param order what `order` returned.
  /// @param batch from 0 to `size()` - 1.
  std::span<const std::int64_t> part(std::span<const std::int64_t> order, std::int64_t batch) const;

 private:
  std::shared_ptr<const Sampler> sampler_;
  BatchOptions options_;
};

}  // namespace lockstep::data
