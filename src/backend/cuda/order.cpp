#include "cuda/order.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"

namespace lockstep::backend {
namespace {

void argsort(const kernels::ArgsortArguments& arguments, StreamRef stream) {
  const Scratch scratch(cuda_kernels::argsort_scratch_bytes(arguments), stream);
  cuda_kernels::argsort(arguments, scratch.data(), stream);
}

}  // namespace

kernels::OrderKernels cuda_families::order() {
  return {.argsort = argsort, .search = cuda_kernels::search};
}

}  // namespace lockstep::backend
