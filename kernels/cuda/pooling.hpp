#pragma once

#include "arguments/pooling.hpp"

namespace lockstep::cuda_kernels {

void max_pool(const kernels::MaxPoolArguments& arguments, StreamRef stream);
void max_pool_backward(const kernels::MaxPoolBackwardArguments& arguments, StreamRef stream);
void average_pool(const kernels::AveragePoolArguments& arguments, StreamRef stream);
void average_pool_backward(const kernels::AveragePoolBackwardArguments& arguments,
                           StreamRef stream);

}  // namespace lockstep::cuda_kernels
