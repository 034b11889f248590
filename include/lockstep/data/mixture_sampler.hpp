#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/sampler.hpp"

/// @file
/// Samples of several data sets in given shares.

namespace lockstep::data {

/// Other weights from a sample of the run on.
struct MixtureChange {
  /// The first sample that follows them, counted over all epochs and ranks: epoch * epoch_size and
  /// the samples of that epoch before it. That is step * batch_size where an epoch_size is a
  /// multiple of the batch's.
  std::int64_t first = 0;
  /// One for each source.
  std::vector<std::int64_t> weights = {};
};

/// How a MixtureSampler mixes its sources.
struct MixtureOptions {
  /// One for each source, in whole numbers of any unit: {70, 25, 5}. A source of 0 is left out.
  std::vector<std::int64_t> weights = {};
  /// Later ones, in the order of their first samples.
  std::vector<MixtureChange> changes = {};
  /// Samples in an epoch of the mixture; 0: as many as all sources have together.
  std::int64_t epoch_size = 0;
  /// Draw an order for each pass through a source; else it is walked in its own order.
  bool shuffle = true;
  /// Chooses the orders.
  std::uint64_t seed = 0;
};

/// Mixes the data sets of a ConcatDataset. Of any number of samples since its weights began to hold
/// a source has the share that its weight says, rounded up or down, and the sources alternate
/// as evenly as that asks. Each source is walked pass by pass, every sample once a pass, whatever
/// the mixture's epochs: an epoch goes on where the one before ended. (A loader's `drop_last`
/// leaves out what fills no batch of an epoch; an `epoch_size` that batches divide has none.)
/// Everything is computed from the number of samples so far, so that a run goes on anywhere at
/// once.
///
/// The weights are carried out exactly: that is why they are whole numbers. Positions are given to
/// sources in a period as long as the sum of the weights without their common factors, in which
/// each is placed before the share's lower bound would be missed, the most urgent first
/// (Tijdeman, "The chairman assignment problem", 1980; Steiner and Yeomans, "Level schedules for
/// mixed-model, just-in-time processes", 1993).
///
/// Weights of samples that are still to come may be others in the sampler to which a loader's state
/// is handed; those of samples before it may not.
class MixtureSampler : public Sampler {
 public:
  /// The largest sum of weights, once they are divided by what they have in common.
  static constexpr std::int64_t longest_period = 100'000;

  /// @param sizes of the sources: `ConcatDataset::sizes()`.
  /// @throws InvalidArgument for no or empty sources, other numbers of weights than of sources,
  /// weights below 0 or all 0, or of too large a sum, and changes that are not in order.
  MixtureSampler(std::vector<std::int64_t> sizes, MixtureOptions options);

  std::int64_t size() const override { return options_.epoch_size; }
  /// Indices into a ConcatDataset of the sources, with the pass that each sample belongs to.
  void indices(std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override;
  std::uint64_t order_signature() const override;
  std::uint64_t signature_up_to(std::uint64_t epoch, std::int64_t samples) const override;

  /// How many of the run's first samples, over all epochs and ranks, are of a source.
  /// @throws InvalidArgument for a source that is not there, or a number below 0.
  std::int64_t count(std::size_t source, std::int64_t samples) const;

 private:
  struct Phase;
  std::int64_t run_position(std::uint64_t epoch, std::int64_t first) const;
  const Phase& phase_at(std::int64_t sample) const;
  void begin_phase(std::int64_t first, const std::vector<std::int64_t>& weights);
  void draw(std::size_t source, std::int64_t first, std::span<std::int64_t> out) const;
  std::uint64_t signature_before(std::int64_t sample) const;

  std::vector<std::int64_t> sizes_, offsets_;
  std::int64_t total_ = 0;
  MixtureOptions options_;
  std::vector<std::shared_ptr<const Phase>> phases_;
};

}  // namespace lockstep::data
