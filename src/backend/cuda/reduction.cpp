#include "arguments/reduction.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "cuda/move.hpp"
#include "cuda/reduce.hpp"

namespace lockstep::backend {
namespace {

/// What a reduction over no elements gives; no grid runs over them.
void reduce_nothing(const kernels::ReduceArguments& a, StreamRef stream) {
  const double value = traits(a.op).of_nothing(a.in.shape);
  if (!a.accumulate) cuda_kernels::fill({.out = a.out, .value = value}, stream);
}

void reduce(const kernels::ReduceArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  if (a.in.numel() == 0) return reduce_nothing(a, stream);
  const Scratch scratch(cuda_kernels::reduce_scratch_bytes(a), stream);
  cuda_kernels::reduce(a, scratch.data(), stream);
}

}  // namespace

kernels::ReductionKernels cuda_families::reduction() {
  return {.reduce = reduce,
          .arg_extreme = cuda_kernels::arg_extreme,
          .cumsum = cuda_kernels::cumsum,
          .topk = cuda_kernels::topk};
}

}  // namespace lockstep::backend
