#include <cudnn.h>

#include "backend/info.hpp"

namespace lockstep::backend {

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();  // 91900 is 9.19.0
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace lockstep::backend
