#include "arguments/reduction.hpp"

#include "backend/cpu/families.hpp"
#include "cpu/extremes.hpp"
#include "cpu/reduce.hpp"

namespace lockstep::backend {

kernels::ReductionKernels cpu_reduction() {
  return {.reduce = host::reduce,
          .arg_extreme = host::arg_extreme,
          .cumsum = host::cumsum,
          .topk = host::topk};
}

}  // namespace lockstep::backend
