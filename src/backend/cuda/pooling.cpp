#include "cuda/pooling.hpp"

#include "backend/cuda/families.hpp"

namespace lockstep::backend {

kernels::PoolingKernels cuda_families::pooling() {
  return {.max = cuda_kernels::max_pool,
          .max_backward = cuda_kernels::max_pool_backward,
          .average = cuda_kernels::average_pool,
          .average_backward = cuda_kernels::average_pool_backward};
}

}  // namespace lockstep::backend
