#pragma once

#include "backend/backend.hpp"

/// @file
/// The tables of the CUDA backend, one a family.

namespace lockstep::backend::cuda_families {

#define LOCKSTEP_FAMILY(name, Table) kernels::Table name();
LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY

}  // namespace lockstep::backend::cuda_families
