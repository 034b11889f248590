#include <cublasLt.h>

#include "backend/info.hpp"

namespace lockstep::backend {

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();  // 130001 is 13.0.1
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace lockstep::backend
