#include "comm/tcp/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/local_socket.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// The addresses behind a name.
struct Resolved {
  AddressList addresses{nullptr, &freeaddrinfo};
  std::string failure;  ///< why there are none as yet
};

// A name may appear later than the processes that want it, as those of a cluster's containers do.
Resolved resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  std::string name = endpoint.address;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  addrinfo* list = nullptr;
  const int status =
      getaddrinfo(name.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (status == 0) return {.addresses = {list, &freeaddrinfo}, .failure = {}};
  const bool may_appear =
      status == EAI_AGAIN || status == EAI_NONAME || status == EAI_FAIL || status == EAI_NODATA;
  LOCKSTEP_CHECK(may_appear, InvalidArgument, "cannot resolve address '", endpoint.address,
                 "': ", gai_strerror(status));
  Resolved none;
  none.failure = gai_strerror(status);
  return none;
}

// Resolvers ask servers that others ask, too.
constexpr Backoff::Duration first_pause_between_lookups(200);
constexpr auto lookup_lifetime = std::chrono::seconds(5);

// To try again, as where nobody listens yet, would be in vain.
void check_limit_of_files(const Socket& socket, const char* failure) {
  LOCKSTEP_CHECK(socket || (errno != EMFILE && errno != ENFILE), tcp::TooManyFiles, failure, ": ",
                 std::strerror(errno),
                 "; raise the limit (ulimit -n): rank 0 has about three connections to each rank, "
                 "and over tcp each group has one between any two ranks that exchange data");
}

Socket open_socket(const addrinfo& address) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check_limit_of_files(socket, "cannot make a connection");
  return socket;
}

// Firewalls and address translation forget connections that are silent for some minutes, as those
// of a group are between its collectives, and then drop what comes.
void set_options(const Socket& socket) {
  const int on = 1, silent_seconds = 60;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_KEEPIDLE, &silent_seconds,
             sizeof silent_seconds);
}

// Waits for events on one socket; false when the deadline has passed.
bool wait_for(const Socket& socket, short events, Deadline deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{socket.descriptor(), events, 0};
    if (poll(&entry, 1, static_cast<int>(std::min<long long>(left + 1, 1000))) > 0) return true;
  }
}

// A connection to a free port of one's own host may get that very port, and so reach itself.
bool is_connected_to_itself(const Socket& socket) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

// An empty socket, and errno, if it fails at once.
Socket begin_connect(const addrinfo& address) {
  Socket socket = open_socket(address);
  const bool is_under_way =
      socket && (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0 ||
                 errno == EINPROGRESS);
  return is_under_way ? std::move(socket) : Socket();
}

// One attempt; an empty socket if nobody answered. An address that leads nowhere must not take the
// time of the name's other ones.
Socket try_connect(const addrinfo& address, Deadline deadline) {
  deadline = std::min(deadline, Clock::now() + std::chrono::seconds(5));
  Socket socket = begin_connect(address);
  if (!socket || !wait_for(socket, POLLOUT, deadline) || end_connect(socket) != 0) return {};
  return socket;
}

// An empty socket, and errno, if it fails.
Socket listen_on(const addrinfo& address) {
  Socket socket = open_socket(address);
  if (!socket) return socket;
  const int on = 1;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens = bind(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0 &&
                       listen(socket.descriptor(), SOMAXCONN) == 0;
  return listens ? std::move(socket) : Socket();
}

// All numbers below the first free one. @param limit where none is free
rlim_t count_open_files(rlim_t limit) {
  const Socket first_free(eventfd(0, EFD_CLOEXEC));
  return first_free ? static_cast<rlim_t>(first_free.descriptor()) : limit;
}

}  // namespace

void Socket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Endpoint Endpoint::parse(std::string_view text) {
  const std::size_t space = text.find(' ');
  Endpoint endpoint;
  LOCKSTEP_CHECK(space != std::string_view::npos, CorruptData, "malformed endpoint '", text, "'");
  endpoint.address = text.substr(0, space);
  const auto [end, status] =
      std::from_chars(text.data() + space + 1, text.data() + text.size(), endpoint.port);
  LOCKSTEP_CHECK(status == std::errc() && end == text.data() + text.size() && endpoint.port > 0 &&
                     endpoint.port < 65536,
                 CorruptData, "malformed endpoint '", text, "'");
  return endpoint;
}

// Many systems start processes with 1,024 and allow far more.
void make_room_for_connections(int ranks) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = count_open_files(limit.rlim_cur) + 1024 + 4 * static_cast<rlim_t>(ranks);
  if (limit.rlim_cur >= wanted || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

Socket try_listen_on(const Endpoint& endpoint, Deadline deadline) {
  Backoff pause(first_pause_between_lookups);
  Resolved name = resolve(endpoint);
  while (!name.addresses) {
    LOCKSTEP_CHECK(Clock::now() < deadline, InvalidArgument, "cannot resolve address '",
                   endpoint.address, "': ", name.failure);
    pause.sleep(deadline);
    name = resolve(endpoint);
  }
  // Others try all addresses of a name, and some may have no IPv6.
  int error = 0;
  for (const bool is_ipv4 : {true, false})
    for (const addrinfo* address = name.addresses.get(); address; address = address->ai_next) {
      if ((address->ai_family == AF_INET) != is_ipv4) continue;
      if (Socket socket = listen_on(*address)) return socket;
      error = errno;
    }
  errno = error;
  return {};
}

Socket listen_on(const Endpoint& endpoint, Deadline deadline) {
  Socket socket = try_listen_on(endpoint, deadline);
  LOCKSTEP_CHECK(socket, Error, "cannot listen on ", endpoint.address, " port ", endpoint.port,
                 ": ", std::strerror(errno));
  return socket;
}

Socket listen_everywhere(const Endpoint& endpoint) {
  const Resolved name = resolve(endpoint);
  const bool is_ipv6 = name.addresses && name.addresses->ai_family == AF_INET6;
  return listen_on({is_ipv6 ? "::" : "0.0.0.0", endpoint.port});
}

Endpoint local_endpoint(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  LOCKSTEP_CHECK(getsockname(socket.descriptor(), address, &size) == 0 &&
                     getnameinfo(address, size, host, sizeof host, port, sizeof port,
                                 NI_NUMERICHOST | NI_NUMERICSERV) == 0,
                 Error, "cannot tell a socket's own address");
  return {host, std::atoi(port)};
}

bool has_hung_up(const Socket& socket) {
  pollfd entry{socket.descriptor(), POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

Backoff::Backoff(Duration first)
    : length_(first),
      random_(static_cast<unsigned>(getpid() ^ Clock::now().time_since_epoch().count())) {}

Backoff::Duration Backoff::next() {
  constexpr Duration longest(1000);
  const Duration whole = std::min(length_, longest);
  length_ = whole * 3 / 2;
  return whole - Duration(random_() % static_cast<unsigned>(whole.count() / 4 + 1));
}

void Backoff::sleep(Deadline deadline) {
  std::this_thread::sleep_until(std::min<Deadline>(deadline, Clock::now() + next()));
}

Socket connect_to(const Endpoint& endpoint, Deadline deadline, Check check) {
  Resolved name;
  Deadline lookup{};
  Backoff pause, pause_between_lookups(first_pause_between_lookups);
  do {
    check();
    if (!name.addresses || Clock::now() >= lookup) {
      name = resolve(endpoint);
      lookup = Clock::now() + lookup_lifetime;
    }
    for (const addrinfo* address = name.addresses.get(); address; address = address->ai_next)
      if (Socket socket = try_connect(*address, deadline)) return socket;
    (name.addresses ? pause : pause_between_lookups).sleep(deadline);
  } while (Clock::now() < deadline);
  LOCKSTEP_CHECK(name.addresses, Timeout, "cannot resolve address '", endpoint.address,
                 "' in time (LOCKSTEP_JOIN_TIMEOUT sets another): ", name.failure,
                 "; is it the name of rank 0's host, and do name servers know it?");
  LOCKSTEP_THROW(Timeout, "nobody answered on ", endpoint.address, " port ", endpoint.port,
                 " in time (LOCKSTEP_JOIN_TIMEOUT sets another): is rank 0 running there, is that "
                 "its address for other hosts, and does a firewall let them through? "
                 "(LOCKSTEP_ADDRESS sets the one that a rank of mpirun or srun gives)");
}

Socket begin_connect(const Endpoint& endpoint) {
  const Resolved name = resolve(endpoint);
  if (name.addresses) return begin_connect(*name.addresses);
  errno = EADDRNOTAVAIL;
  return {};
}

int end_connect(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
  if (error == 0) set_options(socket);
  return error;
}

std::optional<Socket> accept_from(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  check_limit_of_files(socket, "cannot take another rank's connection");
  if (!socket || !is_welcome(socket)) return std::nullopt;
  set_options(socket);
  return socket;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool send_all(const Socket& socket, std::span<const std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t sent = ::send(socket.descriptor(), data.data(), data.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      data = data.subspan(static_cast<std::size_t>(sent));
    } else if (!would_block()) {
      return false;
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      throw Timeout("a peer did not take a message in time");
    }
  }
  return true;
}

bool receive_all(const Socket& socket, std::span<std::byte> room, Deadline deadline) {
  while (!room.empty()) {
    const ssize_t received = ::recv(socket.descriptor(), room.data(), room.size(), 0);
    if (received > 0) {
      room = room.subspan(static_cast<std::size_t>(received));
    } else if (received == 0 || !would_block()) {
      return false;
    } else if (!wait_for(socket, POLLIN, deadline)) {
      throw Timeout("a peer did not send a message in time");
    }
  }
  return true;
}

}  // namespace lockstep::comm::tcp
