#pragma once

#include "backend/backend.hpp"

/// @file
/// The kernel families that oneDNN computes. Each hands what the library lacks (f64, f16, unusual
/// layouts) to the `cpu` backend.

namespace lockstep::backend {

/// Matrix products by the matmul primitive.
kernels::GemmKernels onednn_gemm();
/// Convolutions in the memory order that oneDNN prefers.
kernels::ConvolutionKernels onednn_convolution();
/// Attention in blocks of keys, over own products.
kernels::AttentionKernels blocked_attention();

}  // namespace lockstep::backend
