#include "comm/info.hpp"

// A build without NCCL: it is left out of the list of communicator backends.

namespace lockstep::comm {

std::string nccl_version() { return {}; }

}  // namespace lockstep::comm
