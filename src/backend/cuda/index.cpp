#include "cuda/index.hpp"

#include "backend/cuda/families.hpp"

namespace lockstep::backend {

kernels::IndexKernels cuda_families::index() {
  return {.gather = cuda_kernels::gather, .scatter_add = cuda_kernels::scatter_add};
}

}  // namespace lockstep::backend
