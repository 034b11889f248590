#pragma once

/// @file
/// What a launcher (mpirun, torchrun) says about the job that this process is a rank of.

namespace simgpu {

/// Counts of ranks; 0 where nothing says it.
struct LauncherCounts {
  int ranks = 0;        ///< of the job
  int local_ranks = 0;  ///< of those, on this host
  int rank = 0;         ///< of this process

  bool spans_hosts() const { return local_ranks > 0 && ranks > local_ranks; }
};

/// From the environment variables of Open MPI, MVAPICH, MPICH and torchrun.
LauncherCounts launcher_counts();

}  // namespace simgpu
