#include "comm/bootstrap/bootstraps.hpp"
#include "comm/info.hpp"

// A build without MPI.

namespace lockstep::comm {

std::string mpi_version() { return {}; }

std::unique_ptr<Bootstrap> make_mpi_bootstrap(const Launch& launch, std::chrono::milliseconds) {
  LOCKSTEP_CHECK(
      launch.size == 1, Unsupported, launch.launcher, " started ", launch.size,
      " ranks, but this lockstep was built without MPI: build it with LOCKSTEP_MPI=ON, "
      "or start the ranks with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, under Slurm "
      "by srun --mpi=none");
  return make_single_bootstrap();
}

bool is_mpi_singleton() { return false; }

}  // namespace lockstep::comm
