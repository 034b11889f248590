#include "backend/info.hpp"

namespace lockstep::backend {

std::string cudnn_version() { return "9 (simulated)"; }

}  // namespace lockstep::backend
