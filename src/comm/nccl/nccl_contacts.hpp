#pragma once

#include <span>
#include <vector>

#include "comm/operation.hpp"

namespace lockstep::comm {

/// The ranks that a rank is connected with for messages, both ways. NCCL connects two ranks, on the
/// host, at the first group of calls that needs it, one direction at a time as the calls want it,
/// and both must want the same (ncclTransportP2pSetup, in all versions from 2.18 to 2.30). Where
/// one begins with a batch of a send and a receive and the other with one of them alone, NCCL fails
/// if they are half the group apart, because one message tells of both directions and is longer
/// than the other's; else they wait for each other. All peers of a group are connected in one go,
/// which ends once each of them has come to its end.
///
/// So two ranks first exchange a tiny message each way, in a group of its own. Ranks do that with
/// one new peer after the other, in ascending order: among ranks that all have come to their
/// batches, the lowest of the pairs that are left always meets.
class NcclContacts {
 public:
  NcclContacts(int rank, int size);

  /// The ranks to exchange a tiny message with before these operations. None before an all-to-all:
  /// all ranks call it, and it connects them both ways.
  std::vector<int> first_reached_by(std::span<const Operation> operations) const;
  void note(int rank) { is_known_[static_cast<std::size_t>(rank)] = true; }
  /// These operations were called.
  void note(std::span<const Operation> operations);

 private:
  std::vector<bool> is_known_;  // by rank; this one knows itself
};

}  // namespace lockstep::comm
