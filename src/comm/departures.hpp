#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/group_registry.hpp"

namespace lockstep::comm {

/// The members that have left a group, as far as this rank has heard. Whoever owns it guards it.
class Departures {
 public:
  void add(const Departure& departure);
  /// True if a rank is gone that never joins the collective of this number. What comes before the
  /// departure was joined by all: it ends, or fails by itself.
  /// @param collective none: sends and receives only, which departures do not decide on
  bool rule_out(std::optional<std::uint64_t> collective) const;
  /// Who left, after how many.
  std::string describe(const std::string& group) const;

 private:
  std::optional<Departure> first_;  // in the order of the collectives
};

}  // namespace lockstep::comm
