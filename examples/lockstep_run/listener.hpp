#pragma once

#include <string>

#include "lockstep_run/descriptor.hpp"

namespace run {

/// A listening socket for rank 0 to inherit.
struct Listener {
  Descriptor socket;
  bool is_own_address = true;  ///< false: the address only leads here
};

/// Listens at a free port of an address: no other process can take the port meanwhile. An address
/// that is none of this host's interfaces, as that of a service or of a router that translates
/// addresses, leads to all of them; and so does a name that is loopback here, as hosts often call
/// themselves in /etc/hosts.
/// @throws Error naming the address.
Listener listen_on(const std::string& address);

/// At which port.
int port_of(const Descriptor& listener);

/// A random text that strangers cannot guess. @throws Error
std::string make_token();

}  // namespace run
