#include "cuda/norm.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"

namespace lockstep::backend {
namespace {

void layer_norm_backward(const kernels::LayerNormBackwardArguments& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::norm_scratch_bytes(arguments), stream);
  cuda_kernels::layer_norm_backward(arguments, scratch.data(), stream);
}

// RMS norm is layer norm without mean and bias, and so are its kernels.
void rms_norm(const kernels::RmsNormArguments& a, StreamRef stream) {
  cuda_kernels::layer_norm({.y = a.y, .rstd = a.rstd, .x = a.x, .weight = a.weight, .eps = a.eps},
                           stream);
}

void rms_norm_backward(const kernels::RmsNormBackwardArguments& a, StreamRef stream) {
  layer_norm_backward({.dx = a.dx,
                       .dweight = a.dweight,
                       .dy = a.dy,
                       .x = a.x,
                       .weight = a.weight,
                       .rstd = a.rstd,
                       .accumulate = a.accumulate},
                      stream);
}

}  // namespace

kernels::NormKernels cuda_families::norm() {
  return {.layer_norm = cuda_kernels::layer_norm,
          .layer_norm_backward = layer_norm_backward,
          .rms_norm = rms_norm,
          .rms_norm_backward = rms_norm_backward};
}

}  // namespace lockstep::backend
