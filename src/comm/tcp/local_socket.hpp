#pragma once

#include "comm/tcp/socket.hpp"

namespace lockstep::comm::tcp {

/// Listens for processes of the same user on this host, and no others: the system tells whose a
/// connection is. Opens no TCP port, and leaves no file. @param port tells jobs apart.
/// @throws Error where another job has it
Socket listen_locally(int port);

/// Connects to `listen_locally`, and tries again while nobody listens yet.
/// @throws Timeout; Error where another user listens there
Socket connect_locally(int port, Deadline deadline);

/// False for a connection on this host from or to another user.
bool is_welcome(const Socket& socket);

}  // namespace lockstep::comm::tcp
