#pragma once

#include "arguments/optimizer.hpp"

/// @file
/// Steps of optimizers whose states are in few bits, or whose parameters are rounded
/// stochastically. The list may hold other tensors as well, but none of f64.

namespace lockstep::cuda_kernels {

#define LOCKSTEP_OPTIMIZER(name, Rule) \
  void compact_update(const kernels::OptimizerArguments<Rule>& arguments, StreamRef stream);
LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule)                                                    \
  void compact_measure(const kernels::OptimizerArguments<Rule>& arguments, void* scratch, \
                       StreamRef stream);
LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

void load_state(const kernels::StateTransferArguments& arguments, StreamRef stream);
void store_state(const kernels::StateTransferArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
