#pragma once

#include <cstdint>
#include <vector>

#include "nccl.h"
#include "nccl/segment.hpp"
#include "nccl/socket.hpp"

/// @file
/// How the ranks of a new communicator find each other.

namespace simgpu::nccl {

/// What the others must know about a rank to reach it. Sent as it lies in memory.
struct PeerInfo {
  Token token{};        ///< opens this rank's segment and its listener
  char host[128] = {};  ///< equal for ranks that can share memory
  Endpoint listener;    ///< for ranks of other hosts
  std::int32_t rank = 0;
  std::int32_t process = 0;
  std::int32_t descriptor = -1;  ///< of the segment, in that process
  std::int32_t device = 0;
  std::int32_t color = 0, key = 0;  ///< of a split
};

/// Starts a rendezvous in the background of this process, and tells where it is. @throws Failure
ncclUniqueId start_rendezvous();

/// Presents this rank at the rendezvous and waits for all ranks.
/// @return the peer infos by rank. @throws Failure
std::vector<PeerInfo> join_rendezvous(const ncclUniqueId& id, const PeerInfo& info, int ranks,
                                      const GiveUp& give_up);

}  // namespace simgpu::nccl
