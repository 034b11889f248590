#pragma once

#include <span>
#include <string>

#include <sched.h>

#include "comm/session/cpu_quota.hpp"

namespace lockstep::comm {

/// The processor cores that one rank of a machine may use, and the threads that it uses there.
struct RankThreads {
  cpu_set_t cores;           ///< affinity mask
  cpu_set_t launcher_cores;  ///< that of the process which started the rank
  int threads = 1;
  bool is_chosen = false;  ///< by the user, by an option or OMP_NUM_THREADS
  CpuQuota quota = {};     ///< of its control group; no cores: none
};

/// How many threads a rank should use: its cores, and its control group's quota, divided among the
/// ranks that share them; 0 if the system does not say.
/// @param ranks those of its machine, itself among them.
int threads_for(const RankThreads& rank, std::span<const RankThreads> ranks);

/// What is wrong with how the ranks of one machine use its cores, and the flags that help; empty if
/// nothing is. Threads that share a core wait for each other at the end of every op, and a launcher
/// that binds ranks may leave most cores idle.
std::string thread_advice(std::span<const RankThreads> ranks);

}  // namespace lockstep::comm
