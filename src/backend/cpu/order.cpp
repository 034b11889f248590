#include "cpu/order.hpp"

#include "backend/cpu/families.hpp"

namespace lockstep::backend {

kernels::OrderKernels cpu_order() { return {.argsort = host::argsort, .search = host::search}; }

}  // namespace lockstep::backend
