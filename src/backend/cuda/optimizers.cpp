#include "backend/cuda/optimizers.hpp"

#include "cuda/compact_optimizer.hpp"
#include "cuda/optimizer.hpp"
#include "cuda/scratch.hpp"

namespace lockstep::backend {
namespace {

/// The first pass of an optimizer by layer, with its scratch memory.
template <class Rule, void (*measure)(const kernels::OptimizerArguments<Rule>&, void*, StreamRef)>
void with_scratch(const kernels::OptimizerArguments<Rule>& arguments, StreamRef stream) {
  const cuda_kernels::Scratch scratch(cuda_kernels::measure_scratch_bytes(arguments.tensors),
                                      stream);
  measure(arguments, scratch.data(), stream);
}

}  // namespace

const kernels::OptimizerKernels& cuda_optimizers() {
  static constexpr kernels::OptimizerKernels table{
#define LOCKSTEP_OPTIMIZER(name, Rule) .name = cuda_kernels::name,
      LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule) \
  .name##_measure = with_scratch<Rule, cuda_kernels::name##_measure>,
          LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
              .load_state = cuda_kernels::load_state,
      .store_state = cuda_kernels::store_state};
  return table;
}

}  // namespace lockstep::backend
