#include "checkpoint/shard_names.hpp"

#include <set>

#include "lockstep/autograd/leaf.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/parameter_shards.hpp"
#include "lockstep/parallel/reducer.hpp"

namespace lockstep::checkpoint {

ShardNames::ShardNames(const optim::Optimizer& optimizer, const nn::ReplicatedModule& replica)
    : optimizer_(optimizer), replica_(replica) {
  check();
}

void ShardNames::check() const {
  std::set<const TensorImpl*> own;
  for (const auto& [name, shard] : replica_.named_parameters()) own.insert(&shard.impl());
  for (const optim::ParameterState& each : optimizer_.parameter_states())
    LOCKSTEP_CHECK(
        own.contains(&each.parameter.impl()) ||
            autograd::share_of(each.parameter) != autograd::GradientShare::part,
        InvalidArgument, "the optimizer has a shard of another DistributedDataParallel, ",
        each.name.empty() ? "without a name" : each.name,
        ", beside those of the one that it was given with, so that no state of it can be "
        "put together; with a zero_stage give each model an optimizer of its own");
}

void ShardNames::find_names() {
  const auto states = optimizer_.parameter_states();
  if (known_ == states.size()) return;
  std::map<const TensorImpl*, std::string> of_shards;
  for (const auto& [name, shard] : replica_.named_parameters())
    of_shards.emplace(&shard.impl(), name);
  names_.clear();
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto shard = of_shards.find(&states[i].parameter.impl());
    if (shard == of_shards.end()) continue;
    names_.emplace(states[i].name.empty() ? std::to_string(i) : states[i].name, shard->second);
  }
  known_ = states.size();
}

std::optional<parallel::ShardRange> ShardNames::range_of(const std::string& key) {
  find_names();
  for (auto dot = key.rfind('.'); dot != std::string::npos && dot > 0;
       dot = key.rfind('.', dot - 1))
    if (const auto found = names_.find(key.substr(0, dot)); found != names_.end())
      return replica_.reducer().shards()->range_of(found->second + key.substr(dot));
  return std::nullopt;
}

}  // namespace lockstep::checkpoint
