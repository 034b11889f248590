#include "cuda/interpolation.hpp"

#include "backend/cuda/families.hpp"

namespace lockstep::backend {

kernels::InterpolationKernels cuda_families::interpolation() {
  return {.forward = cuda_kernels::interpolate, .backward = cuda_kernels::interpolate_backward};
}

}  // namespace lockstep::backend
