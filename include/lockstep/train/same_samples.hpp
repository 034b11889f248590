#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/checkpoint/states.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// Making sure that ranks share out the same samples.

namespace lockstep::train {

namespace detail {
/// @param fixed this rank's, unless it may still take another.
/// @return rank 0's. @throws InvalidArgument on every rank where one has another.
std::uint64_t same_seed(comm::Communicator& group, std::optional<std::uint64_t> fixed);
}  // namespace detail

/// Has the data sets of all ranks draw the random numbers of one: loaders without a seed take that
/// of rank 0. A train::Loop does this by itself; for a loop of one's own it is one line before the
/// first epoch, and before a checkpoint is loaded:
///
///     train::agree_on_samples(*session.host_world(), loader);
///
/// One small exchange. Blocks; every rank of the group must call it.
/// @param group of all ranks that share out the samples.
/// @throws InvalidArgument on every rank, with ranks and values, where they differ.
template <checkpoint::CountsSamples L>
void agree_on_samples(comm::Communicator& group, L& loader) {
  auto state = loader.state();
  if constexpr (requires { state.seed = std::optional<std::uint64_t>(); }) {
    const std::uint64_t seed = detail::same_seed(group, state.seed);
    if (state.seed) return;
    state.seed = seed;
    loader.load_state(state);
  }
}

}  // namespace lockstep::train
