#pragma once

#include <vector>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// The outcome of a split for this rank.
struct SplitPlan {
  std::vector<int> members;  ///< ranks of the old group in their new order; empty for no colour
};

/// Exchanges colours and keys and works out this rank's new group. Blocks.
SplitPlan agree_on_split(Communicator& group, int color, int key);

}  // namespace lockstep::comm
