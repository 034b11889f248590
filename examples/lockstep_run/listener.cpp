#include "lockstep_run/listener.hpp"

#include <array>
#include <memory>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

namespace run {
namespace {

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto host = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return (host >> 24) == 127;
}

/// Means the same host wherever it is said.
bool is_loopback(const std::string& name) {
  return name == "localhost" || name == "::1" || name.starts_with("127.");
}

/// An empty descriptor, and errno, if it fails.
Descriptor try_listen(const addrinfo& info, bool on_all) {
  Descriptor listener(::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(info.ai_family);  // and zeros: all interfaces
  const auto* address = on_all ? reinterpret_cast<const sockaddr*>(&any) : info.ai_addr;
  const bool listens = listener && bind(listener.get(), address, info.ai_addrlen) == 0 &&
                       ::listen(listener.get(), SOMAXCONN) == 0;
  if (listens) return listener;
  const int error = errno;
  listener.close();
  errno = error;
  return {};
}

}  // namespace

Listener listen_on(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(address.c_str(), nullptr, &hints, &list);
  LOCKSTEP_CHECK(status == 0, lockstep::Error, "cannot resolve ", address, ": ",
                 gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  // As rank 0 does by itself: some of the others may have no IPv6.
  for (const bool is_ipv4 : {true, false})
    for (const addrinfo* each = list; each; each = each->ai_next) {
      if ((each->ai_family == AF_INET) != is_ipv4) continue;
      const bool on_all = is_loopback(*each->ai_addr) && !is_loopback(address);
      if (Descriptor socket = try_listen(*each, on_all)) return {std::move(socket)};
    }
  if (errno == EADDRNOTAVAIL)
    if (Descriptor socket = try_listen(*list, true)) return {std::move(socket), false};
  LOCKSTEP_THROW(Error, "cannot listen at ", address, ": ", std::strerror(errno));
}

int port_of(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  checked(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string make_token() {
  std::array<unsigned char, 16> bytes;
  checked(getrandom(bytes.data(), bytes.size(), 0) == std::ssize(bytes) ? 0 : -1, "getrandom");
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

}  // namespace run
