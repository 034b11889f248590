#pragma once

#include <string_view>

#include "arguments/attention.hpp"
#include "arguments/batch_norm.hpp"
#include "arguments/convolution.hpp"
#include "arguments/cross_entropy.hpp"
#include "arguments/elementwise.hpp"
#include "arguments/embedding.hpp"
#include "arguments/gemm.hpp"
#include "arguments/index.hpp"
#include "arguments/interpolation.hpp"
#include "arguments/multi_tensor.hpp"
#include "arguments/norm.hpp"
#include "arguments/pooling.hpp"
#include "arguments/random.hpp"
#include "arguments/recurrent.hpp"
#include "arguments/reduction.hpp"
#include "arguments/softmax.hpp"
#include "lockstep/backend/info.hpp"
#include "lockstep/core/device.hpp"

/// @file
/// The seam between ops and the code that computes them. A backend is a table of kernel families;
/// it fills in those it has and takes the rest from the complete backend of its device.

namespace lockstep::backend {

/// The kernels of one backend, family by family.
struct Backend {
  std::string_view name;
  kernels::ElementwiseKernels elementwise = {};
  kernels::RandomKernels random = {};
  kernels::ReductionKernels reduction = {};
  kernels::IndexKernels index = {};
  kernels::MultiTensorKernels multi_tensor = {};
  kernels::SoftmaxKernels softmax = {};
  kernels::CrossEntropyKernels cross_entropy = {};
  kernels::NormKernels norm = {};
  kernels::EmbeddingKernels embedding = {};
  kernels::RecurrentKernels recurrent = {};
  kernels::InterpolationKernels interpolation = {};
  kernels::GemmKernels gemm = {};
  kernels::ConvolutionKernels convolution = {};
  kernels::PoolingKernels pooling = {};
  kernels::BatchNormKernels batch_norm = {};
  kernels::AttentionKernels attention = {};
};

/// The backend itself, once all its families are set. Whatever ops run on has passed through here,
/// so they need not ask. @throws Unsupported naming the backend and the families that it lacks.
const Backend& complete(const Backend& backend);

/// Tuned loops on the CPU, for every op and dtype.
const Backend& cpu();
/// oneDNN over `cpu`, or null where the build lacks it (`no_onednn.cpp`).
const Backend* onednn();
/// cuBLASLt, cuDNN and own kernels, or null where the build lacks CUDA (`no_cuda.cpp`).
const Backend* cuda();

/// The backend that runs ops on a device: `cuda()`, or the CPU backend in use.
/// @throws Unsupported where the build has none.
const Backend& of(Device device);

}  // namespace lockstep::backend
