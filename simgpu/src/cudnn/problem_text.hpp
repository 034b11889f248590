#pragma once

#include <string>

#include "backend/cuda/cudnn_ops.hpp"

/// @file
/// Problems that cuDNN is asked for, as lines of tests/data/cudnn_problems.txt. A test for which no
/// GPU is needed asks the real cuDNN for a plan for each (tests/toolkit).

namespace simgpu::cudnn {

/// "convolution|1|ARRAY|ARRAY|ARRAY|stride|padding|dilation|groups", with the direction's number;
/// an array is "f32:16:2,3,8,8:192,64,8,1": dtype, alignment in bytes, extents, strides.
std::string problem_text(lockstep::backend::cudnn::ConvDirection direction,
                         const lockstep::backend::cudnn::ConvArrays& arrays,
                         const lockstep::kernels::ConvGeometry& geometry);

/// "attention|scale|causal|q|k|v|out|lse|mask|dout|dq|dk|dv"; "-" where an array is absent.
std::string problem_text(const lockstep::backend::cudnn::AttentionArrays& arrays,
                         lockstep::kernels::AttentionOptions options);

}  // namespace simgpu::cudnn
