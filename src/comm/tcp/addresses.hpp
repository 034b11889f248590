#pragma once

#include <optional>
#include <string>
#include <string_view>

struct ifaddrs;

namespace lockstep::comm::tcp {

/// Of a host's addresses, as getifaddrs lists them, the one under which other hosts reach it most
/// likely, of interfaces that are up and have a carrier: of a network before bridges of containers,
/// IPv4 before IPv6, and one that the host gave itself (169.254/16) only where there is no other.
/// Empty without any.
std::string best_address(const ifaddrs* first);

/// Of the interface of that name: IPv4 before IPv6, and one that the host gave itself only where
/// there is no other. Nothing where there is no such interface; empty where it has no address.
std::optional<std::string> address_of_interface(const ifaddrs* first, std::string_view name);

}  // namespace lockstep::comm::tcp
