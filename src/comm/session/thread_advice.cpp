#include "comm/session/thread_advice.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

// The most threads that one core has to run, if each rank spreads its own evenly.
double threads_on_the_busiest_core(std::span<const RankThreads> ranks) {
  double most = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    double threads = 0;
    for (const RankThreads& rank : ranks)
      if (CPU_ISSET(core, &rank.cores)) threads += double(rank.threads) / CPU_COUNT(&rank.cores);
    most = std::max(most, threads);
  }
  return most;
}

/// Ranks of one control group with a quota that is less than their threads; null if there are none.
const RankThreads* over_quota(std::span<const RankThreads> ranks) {
  for (const RankThreads& rank : ranks) {
    int threads = 0;
    for (const RankThreads& other : ranks)
      if (other.quota.group == rank.quota.group) threads += other.threads;
    const bool can_have_fewer = rank.threads > 1;
    if (rank.quota.cores > 0 && can_have_fewer && threads > 1.01 * rank.quota.cores) return &rank;
  }
  return nullptr;
}

}  // namespace

int threads_for(const RankThreads& rank, std::span<const RankThreads> ranks) {
  int with_cores = 0, with_quota = 0;
  for (const RankThreads& other : ranks) {
    with_cores += CPU_EQUAL(&other.cores, &rank.cores) != 0;
    with_quota += other.quota.group == rank.quota.group;
  }
  // Launchers either give each rank cores of its own, or leave all to all.
  int threads = CPU_COUNT(&rank.cores) / std::max(1, with_cores);
  if (CPU_COUNT(&rank.cores) == 0) return 0;
  if (rank.quota.cores > 0)
    threads = std::min(threads, static_cast<int>(rank.quota.cores / std::max(1, with_quota)));
  return std::max(1, threads);
}

std::string thread_advice(std::span<const RankThreads> ranks) {
  cpu_set_t used, launcher;
  CPU_ZERO(&used);
  CPU_ZERO(&launcher);
  int threads = 0;
  for (const RankThreads& rank : ranks) {
    CPU_OR(&used, &used, &rank.cores);
    CPU_OR(&launcher, &launcher, &rank.launcher_cores);
    threads += rank.threads;
  }
  const int cores = CPU_COUNT(&used), all_cores = CPU_COUNT(&launcher);
  const auto count = static_cast<int>(ranks.size());
  // Ranks of one thread each are as few threads as there can be.
  const bool can_have_fewer = threads > count;
  if (can_have_fewer && threads_on_the_busiest_core(ranks) > 1.01)
    return detail::concat(threads, " threads of ", count, count == 1 ? " rank" : " ranks",
                          " share ", cores, cores == 1 ? " core" : " cores",
                          ", which can make them several times slower: set OMP_NUM_THREADS=",
                          std::max(1, cores / count), " or leave it out");
  if (const RankThreads* rank = over_quota(ranks))
    return detail::concat("the control group allows ", rank->quota.cores,
                          " cores of processor time ", "to ", count,
                          count == 1 ? " rank" : " ranks", " with ", threads,
                          " threads, which then stand still for part of the time: set "
                          "OMP_NUM_THREADS=",
                          threads_for(*rank, ranks), " or leave it out");
  const bool is_chosen = std::ranges::any_of(ranks, &RankThreads::is_chosen);
  if (!is_chosen && cores < all_cores && threads < all_cores)
    return detail::concat("the launcher binds ", count, count == 1 ? " rank" : " ranks", " to ",
                          cores, " of ", all_cores,
                          " cores and the others stay idle: give mpirun '--bind-to none', or "
                          "'--map-by slot:PE=N' for N cores of each rank's own");
  return {};
}

}  // namespace lockstep::comm
