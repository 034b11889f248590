#include "comm/departures.hpp"

#include <algorithm>

namespace lockstep::comm {

const Departure* Departures::before(std::optional<std::uint64_t> collective) const {
  const auto first = std::ranges::min_element(gone_, {}, &Departure::collectives);
  return first != gone_.end() && collective && *collective >= first->collectives ? &*first
                                                                                 : nullptr;
}

const Departure* Departures::among(std::span<const int> ranks) const {
  const auto found = std::ranges::find_if(gone_, [&](const Departure& departure) {
    return std::ranges::find(ranks, departure.rank) != ranks.end();
  });
  return found == gone_.end() ? nullptr : &*found;
}

std::string describe(const Departure& departure, const std::string& group) {
  return "rank " + std::to_string(departure.rank) + " left " + group + " after " +
         std::to_string(departure.collectives) +
         " collectives; all ranks must make the same calls, "
         "those whose data end first, too";
}

}  // namespace lockstep::comm
