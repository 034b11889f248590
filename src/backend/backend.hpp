#pragma once

#include <string_view>

#include "arguments/families.hpp"
#include "lockstep/backend/info.hpp"
#include "lockstep/core/device.hpp"

/// @file
/// The seam between ops and the code that computes them. A backend is a table of kernel families;
/// it fills in those it has and takes the rest from the complete backend of its device.

namespace lockstep::kernels {
struct OptimizerKernels;  // arguments/optimizer.hpp
}

namespace lockstep::backend {

/// The kernels of one backend, family by family.
struct Backend {
  std::string_view name;
#define LOCKSTEP_FAMILY(name, Table) kernels::Table name = {};
  LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY
  /// By pointer, so that only who runs optimizers is compiled anew for a new rule.
  const kernels::OptimizerKernels* optimizers = nullptr;
  /// Whether kernels of norms' gradients are to compute gradients of biases besides
  /// (NormByproducts) on a device, rather than products of weights' gradients; null: on none.
  bool (*norms_sum_biases)(int device) = nullptr;
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
