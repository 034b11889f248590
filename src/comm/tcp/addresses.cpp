#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "comm/tcp/socket.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

enum class Interfaces { loopback, network, bridges };

// Bridges of containers and virtual machines have the same address on every host.
Interfaces kind_of(const ifaddrs& entry) {
  if (entry.ifa_flags & IFF_LOOPBACK) return Interfaces::loopback;
  const std::string_view name = entry.ifa_name;
  constexpr std::string_view bridges[] = {"docker", "br-", "virbr", "podman",
                                          "cni",    "lxc", "lxdbr"};
  const auto starts = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return std::ranges::any_of(bridges, starts) ? Interfaces::bridges : Interfaces::network;
}

// The first address of a family on an interface of that kind that is up; empty without one.
// Addresses that mean nothing without the name of an interface are left out.
std::string find_address(int family, Interfaces kind) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, &freeifaddrs);
  for (const ifaddrs* entry = first; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || entry->ifa_addr->sa_family != family) continue;
    if (!(entry->ifa_flags & IFF_UP) || kind_of(*entry) != kind) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      return inet_ntop(family, &address->sin_addr, text, sizeof text);
    }
    const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
    if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr))
      return inet_ntop(family, &address->sin6_addr, text, sizeof text);
  }
  return {};
}

}  // namespace

std::string loopback_address() {
  const bool has_only_ipv6 = find_address(AF_INET, Interfaces::loopback).empty() &&
                             !find_address(AF_INET6, Interfaces::loopback).empty();
  return has_only_ipv6 ? "::1" : "127.0.0.1";
}

std::string reachable_address() {
  if (const char* chosen = std::getenv("LOCKSTEP_ADDRESS"); chosen && *chosen) return chosen;
  for (const Interfaces kind : {Interfaces::network, Interfaces::bridges})
    for (const int family : {AF_INET, AF_INET6})
      if (std::string address = find_address(family, kind); !address.empty()) return address;
  LOCKSTEP_THROW(Unsupported,
                 "the ranks are on several hosts, but this one has no interface besides loopback: "
                 "set LOCKSTEP_ADDRESS to its address");
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1" ||
         address == "[::1]";
}

}  // namespace lockstep::comm::tcp
