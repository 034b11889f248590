#pragma once

#include "backend/cuda/cudnn_ops.hpp"

namespace lockstep::cuda_kernels {

/// Attention as matrix products around a row kernel, in f32 (f64 for f64 data): for what cuDNN's
/// fused kernels leave out. Needs memory for all scores of one batch entry.
void composed_attention(const backend::cudnn::AttentionArrays& arrays,
                        const kernels::AttentionOptions& options, StreamRef stream);
void composed_attention_backward(const backend::cudnn::AttentionArrays& arrays,
                                 const kernels::AttentionOptions& options, StreamRef stream);

}  // namespace lockstep::cuda_kernels
