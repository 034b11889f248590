#include "cuda/softmax.hpp"

#include "backend/cuda/families.hpp"

namespace lockstep::backend {

kernels::SoftmaxKernels cuda_families::softmax() {
  return {.forward = cuda_kernels::softmax, .backward = cuda_kernels::softmax_backward};
}

}  // namespace lockstep::backend
