#include "comm/info.hpp"

namespace lockstep::comm {

std::string nccl_version() { return {}; }

}  // namespace lockstep::comm
