#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/group_registry.hpp"

namespace lockstep::comm {

/// The members that have left a group, as far as this rank has heard. Whoever owns it guards it.
class Departures {
 public:
  /// The first news of a rank counts.
  void add(const Departure& departure) {
    if (!among({&departure.rank, 1})) gone_.push_back(departure);
  }
  bool empty() const { return gone_.empty(); }

  /// A rank that is gone and never joins the collective of this number; null if there is none. What
  /// comes before its departure was joined by all: it ends, or fails by itself.
  /// @param collective none for sends and receives only.
  const Departure* before(std::optional<std::uint64_t> collective) const;
  /// One of these ranks that is gone; null if none is. What it sent before may be on its way.
  const Departure* among(std::span<const int> ranks) const;

 private:
  std::vector<Departure> gone_;
};

/// Who left, after how many collectives.
std::string describe(const Departure& departure, const std::string& group);

}  // namespace lockstep::comm
