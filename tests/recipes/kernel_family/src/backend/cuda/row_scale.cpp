#include "cuda/row_scale.hpp"

#include "backend/cuda/families.hpp"

namespace lockstep::backend {

kernels::RowScaleKernels cuda_families::row_scale() { return {.forward = cuda_kernels::row_scale}; }

}  // namespace lockstep::backend
