#include "backend/backend.hpp"
#include "backend/cpu/optimizers.hpp"

namespace lockstep::backend {

const Backend& cpu() {
  static const Backend table = {.name = "cpu",
#define LOCKSTEP_FAMILY(name, Table) .name = cpu_kernels::name::table(),
                                LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY
                                    .optimizers = &cpu_optimizers()};
  return table;
}

}  // namespace lockstep::backend
