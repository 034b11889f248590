#pragma once

#include <string_view>

#include "arguments/cross_entropy.hpp"
#include "arguments/elementwise.hpp"
#include "arguments/embedding.hpp"
#include "arguments/index.hpp"
#include "arguments/interpolation.hpp"
#include "arguments/multi_tensor.hpp"
#include "arguments/norm.hpp"
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

class Attention;
class BatchNorm;
class Convolution;
class Gemm;
class Pooling;

/// Kernel families of one backend. Non-owning: the families live as long as the program.
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
  Gemm* gemm = nullptr;
  Convolution* convolution = nullptr;
  Pooling* pooling = nullptr;
  BatchNorm* batch_norm = nullptr;
  Attention* attention = nullptr;
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
