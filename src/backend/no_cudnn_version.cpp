#include "backend/info.hpp"

namespace lockstep::backend {

std::string cudnn_version() { return {}; }

}  // namespace lockstep::backend
