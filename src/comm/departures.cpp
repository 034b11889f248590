#include "comm/departures.hpp"

namespace lockstep::comm {

void Departures::add(const Departure& departure) {
  if (!first_ || departure.collectives < first_->collectives) first_ = departure;
}

bool Departures::rule_out(std::optional<std::uint64_t> collective) const {
  return first_ && collective && *collective >= first_->collectives;
}

std::string Departures::describe(const std::string& group) const {
  if (!first_) return "no rank has left " + group;
  return "rank " + std::to_string(first_->rank) + " left " + group + " after " +
         std::to_string(first_->collectives) + " collectives; all ranks must make the same calls";
}

}  // namespace lockstep::comm
