#pragma once

#include <cstdint>

/// @file
/// What a loader hands out, among those of other ranks.

namespace lockstep::data {

/// What of a job's samples a loader hands out. All but `rank` must be alike on ranks that share
/// them out, which train::agree_on_samples makes sure of. What a DistributedSampler does with the
/// samples that fill no round (Remainder) is not in it: DistributedSampler::signature tells.
struct LoaderShare {
  std::uint64_t dataset = 0;  ///< signature of the data set; 0 where it has none
  std::int64_t size = 0;      ///< of the data set
  std::uint64_t order = 0;    ///< Sampler::order_signature
  std::uint64_t epoch = 0;    ///< as LoaderState
  std::int64_t samples = 0;   ///< as LoaderState
  std::int64_t batch_size = 0;
  bool drop_last = false;
  int world_size = 1;  ///< of the loader or its sampler
  int rank = 0;        ///< which share of `world_size`; -1: not known
};

}  // namespace lockstep::data
