#pragma once

#include <cstddef>

#include "arguments/optimizer.hpp"

/// @file
/// Steps of optimizers over whole lists of tensors, one launch for all of one dtype.

namespace lockstep::cuda_kernels {

#define LOCKSTEP_OPTIMIZER(name, Rule) \
  void name(const kernels::OptimizerArguments<Rule>& arguments, StreamRef stream);
LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

/// Bytes of scratch memory that `measure` of a list needs.
std::size_t measure_scratch_bytes(std::span<const kernels::OptimizerTensors> tensors);
#define LOCKSTEP_OPTIMIZER(name, Rule)                                                   \
  void name##_measure(const kernels::OptimizerArguments<Rule>& arguments, void* scratch, \
                      StreamRef stream);
LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

}  // namespace lockstep::cuda_kernels
