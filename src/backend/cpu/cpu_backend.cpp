#include "backend/backend.hpp"
#include "backend/cpu/families.hpp"

namespace lockstep::backend {

const Backend& cpu() {
  static const Backend table = {.name = "cpu",
#define LOCKSTEP_FAMILY(name, Table) .name = cpu_##name(),
                                LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY
  };
  return table;
}

}  // namespace lockstep::backend
