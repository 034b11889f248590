#include "comm/mpi/mpi_call.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

void check_mpi(int status, std::string_view call) {
  if (status == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw MpiError(call, status, std::string_view(text, static_cast<std::size_t>(length)));
}

}  // namespace lockstep::comm
