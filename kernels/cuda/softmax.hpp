#pragma once

#include "arguments/cross_entropy.hpp"
#include "arguments/softmax.hpp"

/// @file
/// Kernels over rows of scores.

namespace lockstep::cuda_kernels {

void softmax(const kernels::SoftmaxArguments& arguments, StreamRef stream);
void softmax_backward(const kernels::SoftmaxBackwardArguments& arguments, StreamRef stream);

/// Here `weight` has the statistics dtype.
void cross_entropy(const kernels::CrossEntropyArguments& arguments, StreamRef stream);
/// Here `weight` has the statistics dtype.
void cross_entropy_backward(const kernels::CrossEntropyBackwardArguments& arguments,
                            StreamRef stream);

}  // namespace lockstep::cuda_kernels
