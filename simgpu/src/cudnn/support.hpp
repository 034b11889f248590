#pragma once

#include "backend/cuda/cudnn_ops.hpp"

/// @file
/// Which problems cuDNN 9 has plans for on the device that is simulated (Hopper), after the support
/// surface that cudnn-frontend checks and the guide's tables.

namespace simgpu::cudnn {

/// True if there is a plan for a convolution: f64, f32, f16 or bf16 throughout; images, weights and
/// results all NCHW or all NHWC; extents that fit the geometry.
bool has_convolution(const lockstep::backend::cudnn::ConvArrays& arrays,
                     const lockstep::kernels::ConvGeometry& geometry);

/// True if there is a fused attention kernel: f16 or bf16 throughout, head sizes that are multiples
/// of 8 up to 256, every stride a multiple of 16 bytes, an additive mask that spans queries and
/// keys; backward not for a single query and key.
bool has_attention(const lockstep::backend::cudnn::AttentionArrays& arrays, bool backward);

}  // namespace simgpu::cudnn
