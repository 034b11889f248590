#include <nccl.h>

#include "comm/info.hpp"

namespace lockstep::comm {

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  // 22809 is 2.28.9.
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace lockstep::comm
