#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <sched.h>

#include "comm/session/device_choice.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::comm {

void choose_threads(Bootstrap& bootstrap, int wanted) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  const std::string own(reinterpret_cast<const char*>(&mask), sizeof mask);
  const auto masks = bootstrap.all_gather_bytes(own);
  if (wanted > 0) return set_num_threads(wanted);
  if (std::getenv("OMP_NUM_THREADS")) return;
  // Launchers either give each rank cores of its own, or leave all to all.
  const auto& host = bootstrap.peers()[static_cast<std::size_t>(bootstrap.rank())].host;
  int sharers = 0;
  for (std::size_t rank = 0; rank < masks.size(); ++rank)
    if (bootstrap.peers()[rank].host == host && masks[rank] == own) ++sharers;
  set_num_threads(std::max(1, CPU_COUNT(&mask) / std::max(1, sharers)));
}

}  // namespace lockstep::comm
