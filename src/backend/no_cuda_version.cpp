#include "backend/info.hpp"

namespace lockstep::backend {

std::string cublaslt_version() { return {}; }

}  // namespace lockstep::backend
