#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/optim/optimizer.hpp"

/// @file
/// The base of optimizers that scale each parameter's step by norms.

namespace lockstep::optim {

/// An optimizer whose steps depend on norms over whole parameters, also where ranks share one out.
/// Options have a member `replicated`.
template <class Options>
class LayerwiseOptimizer : public OptimizerWith<Options> {
 protected:
  LayerwiseOptimizer(const typename OptimizerWith<Options>::Groups& groups, CommunicatorPtr shards)
      : OptimizerWith<Options>(groups), shards_(std::move(shards)) {
    for (const auto& group : groups) LayerwiseOptimizer::check_parameters(group.parameters);
  }

  void check_parameters(const ParameterList& parameters) const override {
    if (!shards_)
      this->refuse_shards(parameters, "give the group of the ranks that share them out");
  }

  /// The ranks over which a group's squares are to be summed; null for this one alone.
  Communicator* shards_of(std::size_t group) const {
    return this->options(group).replicated ? nullptr : shards_.get();
  }

 private:
  CommunicatorPtr shards_;
};

}  // namespace lockstep::optim
