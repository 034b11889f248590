#pragma once

#include "backend/backend.hpp"

/// @file
/// The kernel families of the reference backend, one per interface. Other CPU backends take from
/// here what they do not have themselves.

namespace lockstep::backend {

Elementwise& reference_elementwise();
Reduce& reference_reduce();
MultiTensor& reference_multi_tensor();
kernels::SoftmaxKernels reference_softmax();
kernels::CrossEntropyKernels reference_cross_entropy();
kernels::NormKernels reference_norm();
kernels::EmbeddingKernels reference_embedding();
Gemm& reference_gemm();
Convolution& reference_convolution();
Pooling& reference_pooling();
BatchNorm& reference_batch_norm();
Attention& reference_attention();

}  // namespace lockstep::backend
