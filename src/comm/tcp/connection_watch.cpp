#include "comm/tcp/connection_watch.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/epoll.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

epoll_event event_of(int peer) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.u32 = static_cast<std::uint32_t>(peer);
  return event;
}

}  // namespace

ConnectionWatch::ConnectionWatch() : poller_(epoll_create1(EPOLL_CLOEXEC)) {
  LOCKSTEP_CHECK(poller_, Error, "cannot watch connections: ", std::strerror(errno));
}

void ConnectionWatch::add(const Socket& connection, int peer) {
  epoll_event event = event_of(peer);
  LOCKSTEP_CHECK(
      epoll_ctl(poller_.descriptor(), EPOLL_CTL_ADD, connection.descriptor(), &event) == 0, Error,
      "cannot watch the connection to rank ", peer, ": ", std::strerror(errno));
}

std::vector<int> ConnectionWatch::take() {
  std::vector<int> peers;
  std::array<epoll_event, 64> events;
  int count = 0;
  do {
    count = epoll_wait(poller_.descriptor(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i)
      peers.push_back(static_cast<int>(events[static_cast<std::size_t>(i)].data.u32));
  } while (count == static_cast<int>(events.size()));
  return peers;
}

void ConnectionWatch::watch_again(const Socket& connection, int peer) noexcept {
  epoll_event event = event_of(peer);
  epoll_ctl(poller_.descriptor(), EPOLL_CTL_MOD, connection.descriptor(), &event);
}

}  // namespace lockstep::comm::tcp
