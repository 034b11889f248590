#include "cuda/multi_tensor.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/optimizers.hpp"
#include "backend/cuda/scratch.hpp"

namespace lockstep::backend {
namespace {

void square_sum(const kernels::SquareSumArguments& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::square_sum_scratch_bytes(arguments.arrays), stream);
  cuda_kernels::square_sum(arguments, scratch.data(), stream);
}

void divide(const kernels::DivideArguments& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::square_sum_scratch_bytes(arguments.arrays), stream);
  cuda_kernels::divide(arguments, scratch.data(), stream);
}

}  // namespace

kernels::MultiTensorKernels cuda_families::multi_tensor() {
  return {.optimizers = &cuda_optimizers(),
          .average = cuda_kernels::average,
          .square_sum = square_sum,
          .clip = cuda_kernels::clip,
          .divide = divide,
          .gradient_scaling = cuda_kernels::gradient_scaling,
          .update_loss_scale = cuda_kernels::update_loss_scale};
}

}  // namespace lockstep::backend
