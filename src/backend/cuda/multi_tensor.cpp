#include "cuda/multi_tensor.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"

namespace lockstep::backend {
namespace {

/// An optimizer's step, with its scratch memory.
template <class Arguments, void (*step)(const Arguments&, void*, StreamRef)>
void with_scratch(const Arguments& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::optimizer_scratch_bytes(arguments.tensors), stream);
  step(arguments, scratch.data(), stream);
}

void square_sum(const kernels::SquareSumArguments& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::square_sum_scratch_bytes(arguments), stream);
  cuda_kernels::square_sum(arguments, scratch.data(), stream);
}

}  // namespace

kernels::MultiTensorKernels cuda_families::multi_tensor() {
  return {.sgd = with_scratch<kernels::SgdArguments, cuda_kernels::sgd>,
          .adam = with_scratch<kernels::AdamArguments, cuda_kernels::adam>,
          .square_sum = square_sum,
          .clip = cuda_kernels::clip};
}

}  // namespace lockstep::backend
