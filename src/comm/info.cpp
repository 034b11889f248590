#include "lockstep/comm/info.hpp"

#include "comm/info.hpp"

namespace lockstep::comm {

std::vector<Component> components() {
  std::vector<Component> found;
  for (const auto& [name, version] :
       {Component{"MPI", mpi_version()}, Component{"NCCL", nccl_version()}})
    if (!version.empty()) found.push_back({name, version});
  return found;
}

}  // namespace lockstep::comm
