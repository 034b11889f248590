#pragma once

#include "backend/backend.hpp"

/// @file
/// The tables of the `cpu` backend, one a family.

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
kernels::GemmKernels cpu_gemm();
kernels::ConvolutionKernels cpu_convolution();
kernels::PoolingKernels cpu_pooling();
kernels::BatchNormKernels cpu_batch_norm();
kernels::AttentionKernels cpu_attention();

}  // namespace lockstep::backend
