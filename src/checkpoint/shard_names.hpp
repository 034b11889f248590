#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/shard_range.hpp"

/// @file
/// Which states of an optimizer are of a replica's shards.

namespace lockstep::checkpoint {

/// Finds a replica's shards by what they are: an optimizer may have other names for its parameters
/// than the replica, such as those of several models with a prefix, or none.
class ShardNames {
 public:
  /// Both must live as long. @throws as `check`.
  ShardNames(const optim::Optimizer& optimizer, const nn::ReplicatedModule& replica);

  /// @throws InvalidArgument for an optimizer with shards of another replica: no state of both can
  /// be taken apart by this one.
  void check() const;
  /// What this rank has of a state, such as "fc.weight.exp_avg", or "3.exp_avg" of a parameter
  /// without a name. Nothing for what is not shared out.
  std::optional<parallel::ShardRange> range_of(const std::string& key);

 private:
  void find_names();

  const optim::Optimizer& optimizer_;
  const nn::ReplicatedModule& replica_;
  std::size_t known_ = 0;                     // parameters of the optimizer, which may get more
  std::map<std::string, std::string> names_;  // of the replica, by those of the optimizer
};

}  // namespace lockstep::checkpoint
