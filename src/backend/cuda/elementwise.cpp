#include "arguments/elementwise.hpp"

#include "backend/cuda/families.hpp"
#include "cuda/generate.hpp"
#include "cuda/maths.hpp"
#include "cuda/move.hpp"

namespace lockstep::backend {

kernels::ElementwiseKernels cuda_families::elementwise() {
  return {.unary = cuda_kernels::unary,
          .unary_backward = cuda_kernels::unary_backward,
          .binary = cuda_kernels::binary,
          .binary_backward = cuda_kernels::binary_backward,
          .compare = cuda_kernels::compare,
          .where = cuda_kernels::where,
          .copy = cuda_kernels::copy,
          .fill = cuda_kernels::fill,
          .arange = cuda_kernels::arange,
          .triangle = cuda_kernels::triangle};
}

kernels::RandomKernels cuda_families::random() {
  return {.uniform = cuda_kernels::uniform,
          .normal = cuda_kernels::normal,
          .dropout = cuda_kernels::dropout,
          .set_place = cuda_kernels::set_place};
}

}  // namespace lockstep::backend
