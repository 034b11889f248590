#pragma once

/// @file
/// The kernel families that oneDNN computes. Each hands what the library lacks (f64, f16, unusual
/// layouts) to the `cpu` backend.

namespace lockstep::backend {

class Attention;
class BatchNorm;
class Convolution;
class Gemm;

/// Matrix products by the matmul primitive.
Gemm& onednn_gemm();
/// Convolutions in the memory order that oneDNN prefers.
Convolution& onednn_convolution();
/// Batch normalisation.
BatchNorm& onednn_batch_norm();
/// Attention in blocks of keys, over own products.
Attention& blocked_attention();

}  // namespace lockstep::backend
