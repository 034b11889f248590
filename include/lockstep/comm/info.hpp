#pragma once

#include <string>
#include <vector>

#include "lockstep/core/component.hpp"

/// @file
/// What connects ranks in this build, for bug reports.

namespace lockstep::comm {

/// The libraries behind communicators: MPI, NCCL, as far as this build has them.
std::vector<Component> components();

/// The launcher that started this process, such as "Open MPI's mpirun"; empty without one.
std::string launcher_name();

}  // namespace lockstep::comm
