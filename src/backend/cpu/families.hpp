#pragma once

#include "backend/backend.hpp"

/// @file
/// The tables of the `cpu` backend, one a family.

namespace lockstep::backend {

#define LOCKSTEP_FAMILY(name, Table) kernels::Table cpu_##name();
LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY

}  // namespace lockstep::backend
