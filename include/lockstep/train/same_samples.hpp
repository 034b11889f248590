#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "lockstep/checkpoint/states.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/loader_share.hpp"

/// @file
/// Making sure that ranks share out the same samples.

namespace lockstep::train {

/// What is known beside a loader.
struct SameSamplesOptions {
  int replicas = 0;        ///< ranks that average gradients; 0: not known
  bool are_saved = false;  ///< a checkpoint keeps the loader's place, one for all ranks
};

namespace detail {
/// What ranks tell each other of a loader.
struct LoaderOfRank {
  data::LoaderShare share = {};
  std::uint64_t seed = 0;
  bool has_share = false, is_seed_fixed = false;
};
/// The seed for all ranks. @throws as agree_on_samples.
std::uint64_t agree(comm::Communicator& group, LoaderOfRank own, const SameSamplesOptions& options);
}  // namespace detail

/// Compares what loaders hand out on all ranks: data set, order, place, batches, and who has which
/// share. Loaders without a seed of random numbers take that of rank 0. Where each rank would train
/// on all samples, rank 0 warns. A train::Loop does all this by itself; for a loop of one's own it
/// is one line before the first epoch, and before a checkpoint is loaded:
///
///     train::agree_on_samples(*session.host_world(), loader);
///
/// Ranks that have data sets of their own, by size or `signature()`, and no `world_size`, may take
/// them in any order. One small exchange. Blocks; every rank of the group must call it.
/// @param group of all ranks that share out the samples.
/// @throws InvalidArgument on every rank, with ranks and values, where they differ, and for shares
/// that no rank has, or more than others have.
template <checkpoint::CountsSamples L>
void agree_on_samples(comm::Communicator& group, L& loader,
                      const SameSamplesOptions& options = {}) {
  detail::LoaderOfRank own;
  auto state = loader.state();
  constexpr bool has_seed = requires { state.seed = std::optional<std::uint64_t>(); };
  if constexpr (has_seed) {
    own.is_seed_fixed = state.seed.has_value();
    own.seed = state.seed.value_or(0);
  }
  if constexpr (requires {
                  { loader.share() } -> std::same_as<data::LoaderShare>;
                }) {
    own.share = loader.share();
    own.has_share = true;
  }
  const std::uint64_t seed = detail::agree(group, own, options);
  if constexpr (has_seed) {
    if (state.seed) return;
    state.seed = seed;
    loader.load_state(state);
  }
}

}  // namespace lockstep::train
