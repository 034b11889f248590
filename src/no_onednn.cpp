#include "backend/backend.hpp"
#include "backend/info.hpp"

// A build without oneDNN.

namespace lockstep::backend {

const Backend* onednn() { return nullptr; }
std::string onednn_version() { return {}; }

}  // namespace lockstep::backend
