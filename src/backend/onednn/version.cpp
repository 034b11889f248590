#include <dnnl.h>

#include "backend/info.hpp"

namespace lockstep::backend {

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace lockstep::backend
