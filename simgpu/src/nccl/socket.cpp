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
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/launcher.hpp"
#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto connect_patience = std::chrono::seconds(10);
constexpr int slice = 20;  // ms between two looks at `give_up`

sockaddr_in parse(const char* address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, address, &result.sin_addr) != 1)
    throw Failure(ncclInvalidArgument,
                  std::string("'") + address + "' is no IPv4 address: set LOCKSTEP_ADDRESS");
  return result;
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

Descriptor try_connect(const sockaddr_in& address) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  const int status =
      connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
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

// Of the first interface that is up and leads anywhere.
std::string outward_address() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return loopback;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    const bool leads_out = (entry->ifa_flags & IFF_UP) && !(entry->ifa_flags & IFF_LOOPBACK);
    if (!leads_out || !entry->ifa_addr || entry->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size())) return text.data();
  }
  return loopback;
}

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string meeting_address() {
  const char* chosen = std::getenv("LOCKSTEP_ADDRESS");
  if (chosen && *chosen) return chosen;
  return launcher_counts().spans_hosts() ? outward_address() : loopback;
}

Descriptor listen_on(const std::string& address) {
  const sockaddr_in place = parse(address.c_str(), 0);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || bind(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 ||
      listen(socket.get(), 128) != 0)
    throw Failure(ncclSystemError, "cannot listen on " + address + ": " + std::strerror(errno));
  return socket;
}

Endpoint local_endpoint(const Descriptor& socket) {
  sockaddr_in place{};
  socklen_t size = sizeof place;
  Endpoint endpoint;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&place), &size) != 0 ||
      !inet_ntop(AF_INET, &place.sin_addr, endpoint.address, sizeof endpoint.address))
    throw Failure(ncclSystemError, "cannot tell a socket's own address");
  endpoint.port = ntohs(place.sin_port);
  return endpoint;
}

Descriptor connect_to(const Endpoint& endpoint, const GiveUp& give_up) {
  const sockaddr_in place = parse(endpoint.address, endpoint.port);
  const auto deadline = Clock::now() + connect_patience;
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
