#include "lockstep/train/same_samples.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

namespace lockstep::train::detail {

std::uint64_t same_seed(comm::Communicator& group, std::optional<std::uint64_t> fixed) {
  const std::uint64_t own = fixed.value_or(default_generator().state().seed);
  const std::vector<std::string> all = comm::all_gather_bytes(
      group, (fixed ? "=" : "?") + std::to_string(own), "seeds of the data set's random numbers");
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(all[rank][0] == '?' || all[rank].substr(1) == all[0].substr(1), InvalidArgument,
                   "a loader has seed ", all[0].substr(1), " on rank 0 but ", all[rank].substr(1),
                   " on rank ", rank,
                   ": give all ranks the same DataLoaderOptions::seed, by which each sample has "
                   "its own random numbers, or leave it out");
  return std::stoull(all[0].substr(1));
}

}  // namespace lockstep::train::detail
