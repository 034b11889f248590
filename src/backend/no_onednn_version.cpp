#include "backend/info.hpp"

namespace lockstep::backend {

std::string onednn_version() { return {}; }

}  // namespace lockstep::backend
