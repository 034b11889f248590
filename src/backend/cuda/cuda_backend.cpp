#include "backend/backend.hpp"
#include "backend/cuda/families.hpp"

namespace lockstep::backend {

const Backend* cuda() {
  static const Backend backend{.name = "cuda",
#define LOCKSTEP_FAMILY(name, Table) .name = cuda_families::name(),
                               LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY
  };
  return &backend;
}

}  // namespace lockstep::backend
