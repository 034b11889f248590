#pragma once

#include <string_view>

#include <mpi.h>

namespace lockstep::comm {

/// Throws MpiError with MPI's own words unless the call succeeded.
/// @param call its name, for the message.
void check_mpi(int status, std::string_view call);

}  // namespace lockstep::comm
