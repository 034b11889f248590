#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include <unistd.h>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/session/device_choice.hpp"
#include "comm/session/thread_advice.hpp"
#include "core/thread_places.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::comm {
namespace {

// The cores that a process may use; none if the system does not say, as beyond 1024 cores.
cpu_set_t cores_of(pid_t process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(process, sizeof cores, &cores) != 0) CPU_ZERO(&cores);
  return cores;
}

cpu_set_t set_of(const std::vector<int>& processors) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int processor : processors)
    if (processor < CPU_SETSIZE) CPU_SET(processor, &cores);
  return cores;
}

// What the process may use: all places, where OpenMP has bound this thread to one of them.
cpu_set_t own_cores() {
  const cpu_set_t cores = cores_of(0);
  const ThreadPlaces places = thread_places();
  const cpu_set_t own = set_of(places.own);
  return !places.own.empty() && CPU_EQUAL(&cores, &own) ? set_of(places.all) : cores;
}

// Threads that are none of OpenMP's (of communication, loaders, writers) inherit the mask of the
// one that starts them, and would all stay on its core. OpenMP's others keep their places.
void widen_to(const cpu_set_t& cores) {
  const cpu_set_t now = cores_of(0);
  if (!CPU_EQUAL(&now, &cores)) sched_setaffinity(0, sizeof cores, &cores);
}

// mpirun starts ranks itself, so that it has the cores that it could give them.
cpu_set_t launcher_cores() {
  const auto launch = detect_mpi_launcher();
  const bool is_mpirun = launch && launch->launcher == open_mpi_launcher;
  return cores_of(is_mpirun ? getppid() : 0);
}

// What all ranks of this rank's machine report, in rank order, and whether this one is the first.
struct Machine {
  std::vector<RankThreads> ranks;
  bool is_first = false;
};

Machine gather(Bootstrap& bootstrap, const RankThreads& own) {
  const auto all = bootstrap.all_gather_bytes({reinterpret_cast<const char*>(&own), sizeof own},
                                              "processor cores");
  const auto& peers = bootstrap.peers();
  const auto rank = static_cast<std::size_t>(bootstrap.rank());
  Machine machine;
  for (std::size_t other = 0; other < all.size(); ++other) {
    if (peers[other].machine != peers[rank].machine) continue;
    LOCKSTEP_CHECK(all[other].size() == sizeof own, CorruptData, "malformed affinity mask of rank ",
                   other);
    if (machine.ranks.empty()) machine.is_first = other == rank;
    std::memcpy(&machine.ranks.emplace_back(), all[other].data(), sizeof own);
  }
  return machine;
}

}  // namespace

void choose_threads(Bootstrap& bootstrap, int wanted) {
  const char* variable = std::getenv("OMP_NUM_THREADS");
  RankThreads own{.cores = own_cores(),
                  .launcher_cores = launcher_cores(),
                  .is_chosen = wanted > 0 || variable,
                  .quota = cpu_quota().value_or(CpuQuota{})};
  widen_to(own.cores);
  const int fitting = threads_for(own, gather(bootstrap, own).ranks);
  if (wanted > 0)
    set_num_threads(wanted);
  else if (!variable && fitting > 0)
    set_num_threads(fitting);
  own.threads = num_threads();
  const Machine machine = gather(bootstrap, own);
  if (!machine.is_first) return;
  if (const std::string advice = thread_advice(machine.ranks); !advice.empty())
    LOCKSTEP_LOG(warning, "host ",
                 bootstrap.peers()[static_cast<std::size_t>(bootstrap.rank())].host, ": ", advice);
}

}  // namespace lockstep::comm
