#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/sampler.hpp"

/// @file
/// The share of each rank in a data set.

namespace lockstep::data {

/// What becomes of the samples that do not fill a round over all ranks.
enum class Remainder : std::uint8_t {
  /// Samples of the order's beginning are visited twice, so that all ranks have as many.
  pad,
  /// They are left out; when shuffling, other ones in each epoch.
  drop,
  /// The first ranks have one sample more. Every sample is visited exactly once: for evaluation.
  uneven,
};

/// How a DistributedSampler shares a data set.
struct DistributedSamplerOptions {
  /// This process's number, from 0.
  int rank = 0;
  /// Number of processes.
  int world_size = 1;
  /// Draw a new order for every epoch.
  bool shuffle = true;
  /// The same on all ranks; `DistributedSampler::signature` shows whether it is.
  std::uint64_t seed = 0;
  Remainder remainder = Remainder::pad;
};

/// Every world_size-th index of an order that all ranks agree on. Local batches of B together are
/// the same samples as one batch of B * world_size in a single process with the same seed.
class DistributedSampler : public Sampler {
 public:
  /// @param dataset_size number of samples of the whole data set.
  /// @throws InvalidArgument for an empty data set, fewer samples than ranks, a rank out of range.
  DistributedSampler(std::int64_t dataset_size, DistributedSamplerOptions options);

  /// Number of indices of this rank in every epoch.
  std::int64_t size() const override;
  void indices(std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override;
  int world_size() const override { return options_.world_size; }
  int rank() const override { return options_.rank; }
  /// That of the RandomSampler or SequentialSampler whose order it shares out.
  std::uint64_t order_signature() const override;
  /// A number that is equal on all ranks exactly if they share the same data set in the same way:
  /// compare it over the ranks once, before training (`parallel::check_same_value`), where no
  /// `train::agree_on_samples` does so with all else of a loader.
  std::uint64_t signature() const;

 private:
  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
};

}  // namespace lockstep::data
