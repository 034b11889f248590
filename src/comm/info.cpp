#include "lockstep/comm/info.hpp"

#include <cstdlib>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/info.hpp"

namespace lockstep::comm {

std::vector<Component> components() {
  std::vector<Component> found;
  for (const auto& [name, version] :
       {Component{"MPI", mpi_version()}, Component{"NCCL", nccl_version()}})
    if (!version.empty()) found.push_back({name, version});
  return found;
}

std::string launcher_name() {
  if (const auto launch = detect_mpi_launcher()) return launch->launcher;
  if (std::getenv("TORCHELASTIC_RUN_ID")) return "torchrun";
  return std::getenv("WORLD_SIZE") ? "the environment (RANK, WORLD_SIZE)" : "";
}

}  // namespace lockstep::comm
