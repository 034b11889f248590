#pragma once

#include "backend/backend.hpp"

/// @file
/// The kernel families of the `cpu` backend, one per interface. Other CPU backends take from
/// here what they do not have themselves.

namespace lockstep::backend {

kernels::ElementwiseKernels cpu_elementwise();
kernels::RandomKernels cpu_random();
kernels::ReductionKernels cpu_reduction();
kernels::IndexKernels cpu_index();
kernels::MultiTensorKernels cpu_multi_tensor();
kernels::SoftmaxKernels cpu_softmax();
kernels::CrossEntropyKernels cpu_cross_entropy();
kernels::NormKernels cpu_norm();
kernels::EmbeddingKernels cpu_embedding();
kernels::RecurrentKernels cpu_recurrent();
kernels::InterpolationKernels cpu_interpolation();
Gemm& cpu_gemm();
Convolution& cpu_convolution();
Pooling& cpu_pooling();
BatchNorm& cpu_batch_norm();
Attention& cpu_attention();

}  // namespace lockstep::backend
