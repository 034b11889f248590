#include "nccl/socket.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/launcher.hpp"
#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto connect_timeout = std::chrono::seconds(10);
constexpr int slice = 20;  // ms between two looks at `give_up`

// An address of either family with a port.
struct Place {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Place parse(const char* address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address, std::to_string(port).c_str(), &hints, &found) != 0)
    throw Failure(ncclInvalidArgument, std::string("'") + address +
                                           "' is no IPv4 or IPv6 address: set LOCKSTEP_ADDRESS");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Place place;
  std::memcpy(&place.storage, found->ai_addr, found->ai_addrlen);
  place.size = found->ai_addrlen;
  return place;
}

Descriptor open_socket(const Place& place) {
  return Descriptor(
      ::socket(place.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void disable_delay(const Descriptor& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool wait_for(const Descriptor& socket, short events, int milliseconds) {
  pollfd entry{socket.get(), events, 0};
  return ::poll(&entry, 1, milliseconds) > 0;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Descriptor try_connect(const Place& place) {
  Descriptor socket = open_socket(place);
  if (!socket) return {};
  const int status = connect(socket.get(), place.get(), place.size);
  if (status != 0 && errno != EINPROGRESS) return {};
  if (!wait_for(socket, POLLOUT, 1000)) return {};
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return {};
  disable_delay(socket);
  return socket;
}

constexpr const char* loopback = "127.0.0.1";

// Of the first interface that is up and leads anywhere; IPv6 where there is no IPv4. Addresses that
// mean nothing without the name of an interface are left out.
// @param name of the only interface that counts; null: any but loopback
std::string outward_address(const char* name, const char* otherwise) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return otherwise;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::string ipv6;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    const bool is_chosen =
        name ? std::strcmp(name, entry->ifa_name) == 0 : (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_chosen || !(entry->ifa_flags & IFF_UP) || !entry->ifa_addr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size())) return text.data();
    } else if (entry->ifa_addr->sa_family == AF_INET6 && ipv6.empty()) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) &&
          inet_ntop(AF_INET6, &address->sin6_addr, text.data(), text.size()))
        ipv6 = text.data();
    }
  }
  return ipv6.empty() ? otherwise : ipv6;
}

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string rendezvous_address() {
  const char* chosen = std::getenv("LOCKSTEP_ADDRESS");
  if (chosen && *chosen) return outward_address(chosen, chosen);
  return launcher_counts().spans_hosts() ? outward_address(nullptr, loopback) : loopback;
}

Descriptor listen_on(const std::string& address) {
  const Place place = parse(address.c_str(), 0);
  Descriptor socket = open_socket(place);
  if (!socket || bind(socket.get(), place.get(), place.size) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0)
    throw Failure(ncclSystemError, "cannot listen on " + address + ": " + std::strerror(errno));
  return socket;
}

Endpoint local_endpoint(const Descriptor& socket) {
  Place place;
  Endpoint endpoint;
  std::array<char, NI_MAXSERV> port{};
  if (getsockname(socket.get(), place.get(), &place.size) != 0 ||
      getnameinfo(place.get(), place.size, endpoint.address, sizeof endpoint.address, port.data(),
                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw Failure(ncclSystemError, "cannot tell a socket's own address");
  endpoint.port = std::atoi(port.data());
  return endpoint;
}

Descriptor connect_to(const Endpoint& endpoint, const GiveUp& give_up) {
  const Place place = parse(endpoint.address, endpoint.port);
  const auto deadline = Clock::now() + connect_timeout;
  while (Clock::now() < deadline && !give_up()) {
    if (Descriptor socket = try_connect(place)) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(slice));
  }
  throw Failure(ncclSystemError, std::string("nobody answered on ") + endpoint.address + " port " +
                                     std::to_string(endpoint.port) +
                                     ": where the ranks are on several hosts, set LOCKSTEP_ADDRESS "
                                     "to an address that the others reach");
}

Descriptor accept_from(const Descriptor& listener) {
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) disable_delay(socket);
  return socket;
}

bool wait_readable(const Descriptor& socket, int milliseconds) {
  return wait_for(socket, POLLIN, milliseconds);
}

bool send_all(const Descriptor& socket, const void* data, std::size_t bytes,
              const GiveUp& give_up) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket.get(), from, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      from += sent;
      bytes -= static_cast<std::size_t>(sent);
    } else if (!would_block() || give_up()) {
      return false;
    } else {
      wait_for(socket, POLLOUT, slice);
    }
  }
  return true;
}

bool receive_all(const Descriptor& socket, void* room, std::size_t bytes, const GiveUp& give_up) {
  auto* to = static_cast<char*>(room);
  while (bytes > 0) {
    const ssize_t received = recv(socket.get(), to, bytes, 0);
    if (received > 0) {
      to += received;
      bytes -= static_cast<std::size_t>(received);
    } else if (received == 0 || !would_block() || give_up()) {
      return false;
    } else {
      wait_for(socket, POLLIN, slice);
    }
  }
  return true;
}

void fill_random(void* room, std::size_t bytes) {
  if (getrandom(room, bytes, 0) != static_cast<ssize_t>(bytes))
    throw Failure(ncclSystemError, "the system has no random numbers");
}

bool equal_in_constant_time(const void* a, const void* b, std::size_t bytes) {
  const auto* x = static_cast<const volatile unsigned char*>(a);
  const auto* y = static_cast<const volatile unsigned char*>(b);
  unsigned char difference = 0;
  for (std::size_t i = 0; i < bytes; ++i) difference |= static_cast<unsigned char>(x[i] ^ y[i]);
  return difference == 0;
}

}  // namespace simgpu::nccl
