#include <array>

#include <mpi.h>

#include "comm/info.hpp"

namespace lockstep::comm {

// MPI allows this call before it is initialised.
std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  const std::string version(text.data());
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace lockstep::comm
