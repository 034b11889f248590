#include "cpu/index.hpp"

#include "backend/cpu/families.hpp"

namespace lockstep::backend {

kernels::IndexKernels cpu_index() {
  return {.gather = host::gather, .scatter_add = host::scatter_add};
}

}  // namespace lockstep::backend
