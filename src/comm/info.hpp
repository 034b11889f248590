#pragma once

#include <string>

/// @file
/// Versions of the libraries of optional backends; empty where the build lacks them.

namespace lockstep::comm {

/// What MPI says of itself, on one line.
std::string mpi_version();
/// Version of the NCCL in use.
std::string nccl_version();

}  // namespace lockstep::comm
