#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

struct ifaddrs;

namespace lockstep::comm::tcp {

/// The interface of the default route of least metric, of IPv4 before IPv6, from the system's
/// tables as /proc/net/route and /proc/net/ipv6_route show them; empty without one.
std::string default_interface(std::istream& ipv4_routes, std::istream& ipv6_routes);

/// Of a host's addresses, as getifaddrs lists them, the one under which other hosts reach it most
/// likely, of interfaces that are up and have a carrier: of the default route's interface first, of
/// a network before bridges of containers, IPv4 before IPv6, and one that the host gave itself
/// (169.254/16) only where there is no other. Empty without any.
/// @param default_interface may be empty.
std::string best_address(const ifaddrs* first, std::string_view default_interface);

/// Of the interface of that name: IPv4 before IPv6, and one that the host gave itself only where
/// there is no other. Nothing where there is no such interface; empty where it has no address.
std::optional<std::string> address_of_interface(const ifaddrs* first, std::string_view name);

}  // namespace lockstep::comm::tcp
