#include "cuda/multi_tensor.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"

namespace lockstep::backend {
namespace {

/// An optimizer's step, with its scratch memory.
template <class Rule, void (*step)(const kernels::OptimizerArguments<Rule>&, void*, StreamRef)>
void with_scratch(const kernels::OptimizerArguments<Rule>& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::optimizer_scratch_bytes(arguments), stream);
  step(arguments, scratch.data(), stream);
}

void square_sum(const kernels::SquareSumArguments& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::square_sum_scratch_bytes(arguments), stream);
  cuda_kernels::square_sum(arguments, scratch.data(), stream);
}

}  // namespace

kernels::MultiTensorKernels cuda_families::multi_tensor() {
  kernels::MultiTensorKernels table{.square_sum = square_sum,
                                    .clip = cuda_kernels::clip,
                                    .divide = cuda_kernels::divide,
                                    .update_loss_scale = cuda_kernels::update_loss_scale};
#define LOCKSTEP_OPTIMIZER(name, Rule) table.name = with_scratch<Rule, cuda_kernels::name>;
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
  return table;
}

}  // namespace lockstep::backend
