#pragma once

#include <span>
#include <vector>

#include "comm/operation.hpp"

namespace lockstep::comm {

/// The ranks with which a rank has exchanged messages. NCCL connects two ranks at the first group
/// of calls that needs it, one direction at a time as the calls want it, and both must want the
/// same (ncclTransportP2pSetup, in all versions from 2.18 to 2.30). Where one begins with a batch
/// of a send and a receive and the other with one of them alone, NCCL fails if they are half the
/// group apart, because one message tells of both directions and is longer than the other's; else
/// they wait for each other. So both begin with a tiny message each way, in the same group as their
/// first calls to each other: then both want both directions, whatever these calls are, and nothing
/// waits for more than these do.
class NcclContacts {
 public:
  NcclContacts(int rank, int size);

  /// The ranks that these operations would be the first to reach.
  std::vector<int> first_reached_by(std::span<const Operation> operations) const;
  /// They were reached.
  void note(std::span<const int> ranks);

 private:
  std::vector<bool> is_known_;  // by rank; this one knows itself
};

}  // namespace lockstep::comm
