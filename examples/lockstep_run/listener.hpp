#pragma once

#include <string>

#include "lockstep_run/descriptor.hpp"

namespace run {

/// Listens at a free port of an address, for rank 0 to inherit: no other process can take the port
/// meanwhile. At an address that is loopback here and another host's name for this one elsewhere,
/// as in many an /etc/hosts, it listens on all interfaces.
/// @throws Error naming the address.
Descriptor listen_on(const std::string& address);

/// At which port.
int port_of(const Descriptor& listener);

/// A random text that strangers cannot guess. @throws Error
std::string make_token();

}  // namespace run
