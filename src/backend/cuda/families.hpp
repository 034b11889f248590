#pragma once

#include "backend/backend.hpp"

/// @file
/// The tables of the CUDA backend, one a family.

namespace lockstep::backend::cuda_families {

kernels::ElementwiseKernels elementwise();
kernels::RandomKernels random();
kernels::ReductionKernels reduction();
kernels::IndexKernels index();
kernels::MultiTensorKernels multi_tensor();
kernels::SoftmaxKernels softmax();
kernels::CrossEntropyKernels cross_entropy();
kernels::NormKernels norm();
kernels::EmbeddingKernels embedding();
kernels::RecurrentKernels recurrent();
kernels::InterpolationKernels interpolation();
kernels::GemmKernels gemm();
/// These four throw Unsupported for what needs cuDNN in a build without it.
kernels::ConvolutionKernels convolution();
kernels::PoolingKernels pooling();
kernels::BatchNormKernels batch_norm();
kernels::AttentionKernels attention();

}  // namespace lockstep::backend::cuda_families
