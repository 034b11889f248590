#pragma once

#include <span>
#include <string>

#include "lockstep/comm/bootstrap.hpp"

namespace lockstep::comm {

/// This process as its peers shall know it. Names do not tell hosts apart: containers and cloned
/// machines often have the same one. A running kernel has an id of its own; a network namespace on
/// it has its own loopback interface, and is what containers on one machine rarely share.
Peer describe_this_process();

/// A peer as text, and back. @throws CorruptData
std::string to_text(const Peer& peer);
Peer parse_peer(const std::string& text);

/// A rank among those of its host.
struct LocalPlace {
  int rank = 0;
  int size = 1;
};
LocalPlace local_place(std::span<const Peer> peers, int rank);

}  // namespace lockstep::comm
