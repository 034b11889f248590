#pragma once

#include <span>
#include <string>

#include <sched.h>

namespace lockstep::comm {

/// The processor cores that one rank of a machine may use, and the threads that it uses there.
struct RankThreads {
  cpu_set_t cores;           ///< affinity mask
  cpu_set_t launcher_cores;  ///< that of the process which started the rank
  int threads = 1;
  bool is_chosen = false;  ///< by the user, by an option or OMP_NUM_THREADS
};

/// What is wrong with how the ranks of one machine use its cores, and the flags that help; empty if
/// nothing is. Threads that share a core wait for each other at the end of every op, and a launcher
/// that binds ranks may leave most cores idle.
std::string thread_advice(std::span<const RankThreads> ranks);

}  // namespace lockstep::comm
