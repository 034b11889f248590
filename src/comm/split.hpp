#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// The outcome of a split for this rank: which part of the group it goes to.
struct SplitPlan {
  int color = 0;
  std::vector<int> members;  ///< ranks of the old group in their new order; empty for no colour
  int place = 0;             ///< of this rank among the members
  std::string name;          ///< of the part: "world/0.1"
  /// All-gather of bytes over the old group, for what the new one needs to begin; if a backend
  /// calls it, then on every rank, members or not.
  std::function<std::vector<std::string>(std::string_view)> all_gather;
};

/// Exchanges colours and keys and works out this rank's new group. Blocks. When it returns, nothing
/// is under way on this rank.
/// @param number of the group's splits before this one.
SplitPlan agree_on_split(Communicator& group, int color, int key, std::uint64_t number);

}  // namespace lockstep::comm
