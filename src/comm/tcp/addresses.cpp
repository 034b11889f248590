#include "comm/tcp/addresses.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string_view>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>

#include "comm/tcp/socket.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm::tcp {
namespace {

enum class Interfaces { loopback, network, bridges, local };

/// True for an address that a host gave itself (169.254/16, fe80::/10). A server's management
/// controller has the same one on every host, and IPv6's mean nothing without an interface's name.
bool is_link_local(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto host = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return host >> 16 == 0xA9FE;
}

// Bridges of containers and virtual machines have the same address on every host.
Interfaces kind_of(const ifaddrs& entry) {
  if (entry.ifa_flags & IFF_LOOPBACK) return Interfaces::loopback;
  if (is_link_local(*entry.ifa_addr)) return Interfaces::local;
  const std::string_view name = entry.ifa_name;
  constexpr std::string_view bridges[] = {"docker", "br-", "virbr", "podman",
                                          "cni",    "lxc", "lxdbr"};
  const auto starts = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return std::ranges::any_of(bridges, starts) ? Interfaces::bridges : Interfaces::network;
}

using List = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

/// All addresses of this host's interfaces; empty where the system does not tell.
List interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) first = nullptr;
  return {first, &freeifaddrs};
}

std::string text_of(const sockaddr& address) {
  const void* const bytes =
      address.sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
          : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  char text[INET6_ADDRSTRLEN] = {};
  return inet_ntop(address.sa_family, bytes, text, sizeof text);
}

/// The first address of a family on an interface that is up and has a carrier, and for which
/// `is_wanted` holds; empty without one.
std::string find_address(const ifaddrs* first, int family,
                         FunctionRef<bool(const ifaddrs&)> is_wanted) {
  constexpr unsigned usable = IFF_UP | IFF_RUNNING;
  for (const ifaddrs* entry = first; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || entry->ifa_addr->sa_family != family) continue;
    if ((entry->ifa_flags & usable) != usable || !is_wanted(*entry)) continue;
    return text_of(*entry->ifa_addr);
  }
  return {};
}

std::string find_address(const ifaddrs* first, int family, Interfaces kind) {
  return find_address(first, family, [kind](const ifaddrs& it) { return kind_of(it) == kind; });
}

/// A default route.
struct Route {
  std::string interface;
  unsigned long metric = std::numeric_limits<unsigned long>::max();

  void prefer(const std::string& other, unsigned long metric_of_other) {
    if (interface.empty() || metric_of_other < metric) *this = {other, metric_of_other};
  }
};

// "eth0 00000000 010011AC 0003 0 0 100 00000000 ...": interface, destination, gateway, flags,
// references, uses, metric, mask. The first line has titles.
Route default_ipv4_route(std::istream& routes) {
  Route best;
  std::string line, interface, destination, gateway, mask;
  while (std::getline(routes, line)) {
    lockstep::detail::TextReader words(line);
    unsigned long flags = 0, references = 0, uses = 0, metric = 0;
    words >> interface >> destination >> gateway >> std::hex >> flags >> std::dec >> references >>
        uses >> metric >> mask;
    const bool is_default = destination == "00000000" && mask == "00000000";
    if (words && is_default && (flags & RTF_UP) && !(flags & RTF_REJECT))
      best.prefer(interface, metric);
  }
  return best;
}

// Destination, length of its prefix, source, length, next hop, metric, references, uses, flags, all
// hexadecimal, and the interface.
Route default_ipv6_route(std::istream& routes) {
  Route best;
  std::string line, destination, source, hop, interface;
  while (std::getline(routes, line)) {
    lockstep::detail::TextReader words(line);
    unsigned long length = 0, source_length = 0, metric = 0, references = 0, uses = 0, flags = 0;
    words >> std::hex >> destination >> length >> source >> source_length >> hop >> metric >>
        references >> uses >> flags >> interface;
    if (words && length == 0 && (flags & RTF_UP) && !(flags & RTF_REJECT) && interface != "lo")
      best.prefer(interface, metric);
  }
  return best;
}

}  // namespace

std::string default_interface(std::istream& ipv4_routes, std::istream& ipv6_routes) {
  const Route route = default_ipv4_route(ipv4_routes);
  return route.interface.empty() ? default_ipv6_route(ipv6_routes).interface : route.interface;
}

std::string best_address(const ifaddrs* first, std::string_view default_interface) {
  const auto is_default = [&](const ifaddrs& entry) {
    return entry.ifa_name == default_interface && !is_link_local(*entry.ifa_addr);
  };
  for (const int family : {AF_INET, AF_INET6})
    if (std::string address = find_address(first, family, is_default); !address.empty())
      return address;
  for (const Interfaces kind : {Interfaces::network, Interfaces::bridges})
    for (const int family : {AF_INET, AF_INET6})
      if (std::string address = find_address(first, family, kind); !address.empty()) return address;
  return find_address(first, AF_INET, Interfaces::local);
}

std::optional<std::string> address_of_interface(const ifaddrs* first, std::string_view name) {
  std::optional<std::string> best;
  int best_rank = 0;
  for (const ifaddrs* entry = first; entry; entry = entry->ifa_next) {
    if (name != entry->ifa_name) continue;
    if (!best) best.emplace();
    const int family = entry->ifa_addr ? entry->ifa_addr->sa_family : AF_UNSPEC;
    const bool is_ipv4 = family == AF_INET;
    if (!is_ipv4 && family != AF_INET6) continue;
    const bool is_local = is_link_local(*entry->ifa_addr);
    // IPv6's own addresses mean nothing without the interface's name.
    const int rank = is_local ? (is_ipv4 ? 1 : 0) : (is_ipv4 ? 3 : 2);
    if (rank <= best_rank) continue;
    best_rank = rank;
    best = text_of(*entry->ifa_addr);
  }
  return best;
}

std::string loopback_address() {
  const List all = interfaces();
  const bool has_only_ipv6 = find_address(all.get(), AF_INET, Interfaces::loopback).empty() &&
                             !find_address(all.get(), AF_INET6, Interfaces::loopback).empty();
  return has_only_ipv6 ? "::1" : "127.0.0.1";
}

std::string reachable_address() {
  const List all = interfaces();
  if (const char* chosen = std::getenv("LOCKSTEP_ADDRESS"); chosen && *chosen) {
    const std::string address = address_of_interface(all.get(), chosen).value_or(chosen);
    LOCKSTEP_CHECK(!address.empty(), Unsupported, "LOCKSTEP_ADDRESS is the interface '", chosen,
                   "', which has no address that other hosts reach");
    return address;
  }
  std::ifstream ipv4_routes("/proc/net/route"), ipv6_routes("/proc/net/ipv6_route");
  std::string address = best_address(all.get(), default_interface(ipv4_routes, ipv6_routes));
  LOCKSTEP_CHECK(!address.empty(), Unsupported,
                 "the ranks are on several hosts, but this one has no interface besides loopback "
                 "that is up: set LOCKSTEP_ADDRESS to an address or an interface of it");
  return address;
}

bool is_loopback(std::string_view address) {
  constexpr auto lower = [](unsigned char letter) { return std::tolower(letter); };
  return std::ranges::equal(address, std::string_view("localhost"), {}, lower) ||
         address.starts_with("127.") || address == "::1" || address == "[::1]";
}

}  // namespace lockstep::comm::tcp
