#pragma once

#include <chrono>
#include <string>

#include "comm/tcp/socket.hpp"
#include "lockstep/comm/bootstrap.hpp"

namespace lockstep::comm::control {

/// How long a rank may send nothing: `chosen`, else LOCKSTEP_HEARTBEAT_TIMEOUT in seconds, else
/// half a minute; zero: for any time. @throws InvalidArgument
std::chrono::milliseconds heartbeat_timeout(std::optional<std::chrono::milliseconds> chosen);

/// After how long in one operation ranks are told who is behind: LOCKSTEP_STALL_REPORT in seconds,
/// else 45 s; zero: never. @throws InvalidArgument
std::chrono::seconds stall_time();

/// Whether a process of this host is seen to run the program that this one does.
bool runs_this_program(int pid);
/// Whether a process that did is no more. What it has forked may hold its connections open.
bool has_ended(int pid);

/// Why nothing comes over a connection that is open, as far as this host can tell: the peer's
/// kernel acknowledges what we send even while its process is stopped.
/// @param is_here this process knows the peer by its pid.
std::string explain_missing_heartbeats(const tcp::Socket& socket, const Peer& peer, bool is_here);

}  // namespace lockstep::comm::control
