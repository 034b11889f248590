#include "cpu/row_scale.hpp"

#include "backend/cpu/families.hpp"

namespace lockstep::backend {

kernels::RowScaleKernels cpu_row_scale() { return {.forward = host::row_scale}; }

}  // namespace lockstep::backend
