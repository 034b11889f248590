#include "backend/backend.hpp"
#include "backend/cuda/epilogue_choice.hpp"
#include "backend/cuda/optimizers.hpp"

namespace lockstep::backend {

const Backend* cuda() {
  static const Backend table{.name = "cuda",
#define LOCKSTEP_FAMILY(name, Table) .name = cuda_kernels::name::table(),
                             LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY
                                 .optimizers = &cuda_optimizers(),
                             .norms_sum_biases = cuda_kernels::norms_sum_biases};
  return &table;
}

}  // namespace lockstep::backend
