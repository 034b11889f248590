#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/socket.hpp"

namespace lockstep::comm::tcp {

/// What a connection is for; a peer that means another is turned away.
enum class Purpose : std::uint32_t { rendezvous = 1, data = 2, control = 3, exchange = 4 };

/// Who may connect to whom.
struct Handshake {
  Purpose purpose;
  std::string token;  ///< at most 128 bytes
  int rank;
  int size;
};

/// Presents this rank on a fresh connection. @throws PeerFailure, Timeout, InvalidArgument
void present(const Socket& socket, const Handshake& self, Deadline deadline);

/// Connects, presents this rank, and waits until the other side has accepted it. A listener that
/// many ranks reach at once forgets some of their connections (net.core.somaxconn), and proxies
/// accept connections for a server that is not there yet, and close them: then it tries again.
/// @param connect makes a connection. @param listener its name in errors, such as "rank 0".
/// @throws PeerFailure where the other side turns this rank away, Timeout, InvalidArgument, or what
/// `connect` and `check` throw.
Socket join(FunctionRef<Socket()> connect, std::string_view listener, const Handshake& self,
            Deadline deadline, Check check = check_nothing);

/// Accepts one connection from each of these ranks, of the same job and purpose, and tells the rank
/// so; strangers, malformed handshakes and half-open connections are dropped and hold up
/// nobody. A rank that is gone before all are there may come again.
/// @return sockets by rank; empty of others. @throws Timeout naming the missing ranks, or what
/// `check` throws.
std::vector<Socket> accept_ranks(const Socket& listener, const Handshake& self,
                                 std::span<const int> ranks, Deadline deadline,
                                 Check check = check_nothing);
/// As above, from all ranks from `first` on.
std::vector<Socket> accept_ranks(const Socket& listener, const Handshake& self, int first,
                                 Deadline deadline, Check check = check_nothing);

}  // namespace lockstep::comm::tcp
