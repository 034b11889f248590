#include "comm/info.hpp"

namespace lockstep::comm {

std::string mpi_version() { return {}; }

}  // namespace lockstep::comm
