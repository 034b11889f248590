#pragma once

#include "backend/backend.hpp"

/// @file
/// The kernel families of the CUDA backend. Each function returns the one object there is.

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
Gemm& gemm();
/// These four throw Unsupported for what needs cuDNN in a build without it.
Convolution& convolution();
Pooling& pooling();
BatchNorm& batch_norm();
Attention& attention();

}  // namespace lockstep::backend::cuda_families
